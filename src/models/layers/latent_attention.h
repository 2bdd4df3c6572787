// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention: keys and values of all heads are computed from one narrow row per
// token, and only that row is cached.
//     q_h = [q_nope | rope(q_pe)] = W_q x, or W_qb norm(W_qa x)
//     c = norm(c'), [c' | k_pe] = W_kva x                                     c: the latent
//     k_h = [W_UK,h c | rope(k_pe)],  v_h = W_UV,h c
//     y = W_o concat_h(softmax(scale * q_h k_h') v_h)
// DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434. W_UK is applied to the queries and W_UV to the
// attention's output (absorb_query, expand_values: ops/attention/latent_projection.h), so that
// attention runs over the cached rows [c | rope(k_pe)], in prefill and decode alike. Kimi-Linear
// does not rotate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

class LatentAttention final : public Mixer {
 public:
  // `config` must have latent_attention.
  explicit LatentAttention(const checkpoint::ModelConfig& config);

  [[nodiscard]] std::string_view scope() const override { return "self_attn."; }

  [[nodiscard]] bool serves_ranks() const override { return true; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  CacheLayer add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  [[nodiscard]] int64_t query_width() const {
    return num_heads_ * (latent_.qk_nope_head_dim + latent_.qk_rope_head_dim);
  }

  // Number of rows of the first product that belong to the queries.
  [[nodiscard]] int64_t query_rows() const {
    return latent_.q_lora_rank > 0 ? latent_.q_lora_rank : query_width();
  }

  [[nodiscard]] checkpoint::Assembly split_projection(const std::string& hub) const;

  checkpoint::LatentAttentionConfig latent_;
  int64_t hidden_size_;
  int64_t num_heads_;
  double rope_factor_;
  bool scales_queries_;  // scales queries by their position: LayerInputs::query_scale
  double scale_;
};

// Fills in latent_attention and head_dim, the width of the rotated part; the file's own head_dim is
// ignored. Errors are stored in the reader.
void read_latent_attention(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

}  // namespace heddle::models
