// SPDX-License-Identifier: Apache-2.0
// The mixer of Zamba2's hybrid layers: a shared block of attention and an MLP, whose weights
// several layers use. It reads the residual stream h and the embedding e; its result is added to
// the input of a Mamba-2 layer:
//     c = norm([h; e])        a = W_o attention(c)        f = norm(a)
//     t = W_down(gelu(G) * U)        [G; U] = W_gu f + B_2 B_1 f
//     y = Mamba(norm(h + W t))
// Each layer has low-rank adapters of its own (B here, others for queries, keys and values), its
// own W, pages and state. Glorioso et al., "The Zamba2 Suite", arXiv:2411.15242.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/layers/mamba2.h"

namespace heddle::models {

struct SharedBlockConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t adapter_rank = 0;
  bool adapts_attention = false;
  bool rotates = false;
  double rope_factor = 1;
  double epsilon = 1e-5;
};

// One layer's use of a shared block. In the hub's files layer `first_layer` has the block's
// weights.
struct SharedBlockUse {
  int64_t block = 0;
  int64_t number = 0;    // index among all layers that use a shared block
  int64_t num_uses = 1;  // number of uses of this block, from this layer on
  int64_t first_layer = 0;
  bool is_first = false;  // first use of this block: this layer declares the shared weights
};

class SharedBlockMixer final : public Mixer {
 public:
  SharedBlockMixer(const SharedBlockConfig& config, const SharedBlockUse& use, const Mamba2& mamba)
      : config_(config), use_(use), mamba_(mamba) {}

  [[nodiscard]] std::string_view scope() const override { return "hybrid."; }

  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  CacheLayer add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  [[nodiscard]] std::string shared_scope() const;
  // The widths of queries, keys and values, in this order.
  [[nodiscard]] std::vector<int64_t> widths() const;
  void add_shared_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& hub) const;
  graph::Value attention(graph::GraphBuilder& g, graph::Value both, const LayerInputs& inputs,
                         const CacheLayer& cache) const;

  SharedBlockConfig config_;
  SharedBlockUse use_;
  Mamba2 mamba_;
};

}  // namespace heddle::models
