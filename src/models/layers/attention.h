// SPDX-License-Identifier: Apache-2.0
// Attention: grouped-query attention with rotary positions and the variants of the families.
//     q, k, v = W_q x, W_k x, W_v x                  plus biases
//     q, k = rope(norm(q)), rope(norm(k))            with norms in the forms of QkNorm
//     o = softmax over the visible tokens of (scale q k') v         scale: 1 / sqrt(D) mostly
//     y = W_o (o * sigmoid(gate))                    gate per channel or head, where there is one
// Vaswani et al., arXiv:1706.03762; Ainslie et al., "GQA", arXiv:2305.13245. A window limits what
// is visible (Beltagy et al., "Longformer", arXiv:2004.05150). A sink is a logit that takes part in
// the softmax without a value (Xiao et al., "Attention sinks", arXiv:2309.17453).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

// RMS norms of queries and keys.
enum class QkNorm : uint8_t {
  kNone,
  kHeads,    // norm of each head, before the rotation
  kWhole,    // norm of the whole projection, before the rotation; ranks must share its sum of
             // squares
  kRotated,  // norm of each head, after the rotation, without a weight
};

// A factor on the attention's output, per head or per channel.
enum class OutputGate : uint8_t {
  kNone,
  kChannels,  // one gate per channel; q_proj has, for each head, a query and a gate
  kHeads,     // one gate per head; g_proj has a row for each head
};

// Hub names of the output projection and of the query and key norms.
struct AttentionNames {
  const char* output = "o_proj";
  const char* q_norm = "q_norm";
  const char* k_norm = "k_norm";
};

struct AttentionOptions {
  int64_t hidden_size = 0;
  int64_t input_size = 0;  // input width of queries, keys and values; 0: hidden_size
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;  // width of a value head; 0: head_dim
  double epsilon = 1e-6;
  std::optional<size_t> rope_table = 0;  // index into LayerInputs; none: no rotation
  double rope_factor = 1;                // factor on cosine and sine of the rotation
  bool interleaved = false;              // rotates pairs of neighbouring channels
  bool scales_queries = false;           // scales queries by their position:
                                         // LayerInputs::query_scale
  double softmax_scale = 0;              // factor on the scores q k'
  double value_scale = 1;                // factor on the values W_v x before they are stored
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  float qk_norm_offset = 0;      // added to the norm's weight; 1: zero-centred norm
  bool value_norm = false;       // RMS norm of each head's values, without a weight
  bool keys_are_values = false;  // v = W_k x, the keys before their norm; there is no v_proj
  OutputGate output_gate = OutputGate::kNone;
  bool sinks = false;     // each query head has a sink logit
  bool is_fused = false;  // the hub has one fused qkv_proj
  AttentionNames names = {};
  int64_t window = 0;  // number of last tokens a query sees, including its own; 0: all

  // Index of an earlier KV layer whose keys and values this layer reads; it stores none itself.
  std::optional<int64_t> reads_pages = {};
};

// Options with the sizes of `config`, its rope table and the usual scale, without any variant.
[[nodiscard]] AttentionOptions attention_options(const checkpoint::ModelConfig& config);

// The given options with the window and the rotary table of one layer.
[[nodiscard]] AttentionOptions in_layer(AttentionOptions options,
                                        const checkpoint::ModelConfig& config, int64_t layer);

// For families whose queries and keys always have norms: refuses a file in which use_qk_norm is
// false.
void require_qk_norm(checkpoint::ConfigReader& reader, const checkpoint::ModelConfig& config);

class Attention final : public Mixer {
 public:
  explicit Attention(const AttentionOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view scope() const override { return "self_attn."; }

  // Not where a norm reads the channels of all heads.
  [[nodiscard]] bool serves_ranks() const override { return options_.qk_norm != QkNorm::kWhole; }

  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  CacheLayer add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  [[nodiscard]] int64_t value_dim() const {
    return options_.value_dim > 0 ? options_.value_dim : options_.head_dim;
  }

  // Heads of keys that a rank has.
  [[nodiscard]] int64_t own_kv_heads(const checkpoint::Rank& rank) const {
    return checkpoint::own_range({options_.num_kv_heads, 1, checkpoint::PartCut::kCopied}, rank)
        .count;
  }

  // Normalises and rotates queries or keys [T, N * D].
  graph::Value rotated(graph::GraphBuilder& g, graph::Value heads, std::string_view norm,
                       const LayerInputs& inputs) const;

  AttentionOptions options_;
};

}  // namespace heddle::models
