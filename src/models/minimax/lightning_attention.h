// SPDX-License-Identifier: Apache-2.0
// Lightning attention: linear attention whose states decay by a constant of the head and the layer,
// without a softmax or positions. Qin et al., "Lightning Attention-2", arXiv:2401.04658.
//     [q; k; v] = silu(W_in x)        S <- exp(-s) S + k v'        o = S'q         for each head
//     y = W_out (sigmoid(W_g x) * norm(o))
//     s = 2^(-8 (h + 1) / H) (1 - l / (L - 1 + 1e-5) + 1e-5)        of head h of H in layer l of L
// The norm covers all heads together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/layers/block.h"

namespace heddle::models {

class LightningAttention final : public Mixer {
 public:
  // `layer` and `num_layers` count all layers, including those of softmax attention.
  LightningAttention(int64_t hidden_size, int64_t num_heads, int64_t head_dim, int64_t layer,
                     int64_t num_layers)
      : hidden_size_(hidden_size),
        num_heads_(num_heads),
        head_dim_(head_dim),
        layer_(layer),
        num_layers_(num_layers) {}

  [[nodiscard]] std::string_view scope() const override { return "self_attn."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  // Derives "log_decay": -s of each head.
  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  CacheLayer add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  [[nodiscard]] int64_t width() const { return num_heads_ * head_dim_; }

  int64_t hidden_size_;
  int64_t num_heads_;
  int64_t head_dim_;
  int64_t layer_;
  int64_t num_layers_;
};

}  // namespace heddle::models
