// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet mixer: a short causal convolution, then a recurrence over one matrix S [Dk, Dv]
// per value head. Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.
//     S <- exp(decay) S       S <- S + k (beta (v - S'k))'       o = S'q
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

class GatedDeltaNet final : public Mixer {
 public:
  GatedDeltaNet(const checkpoint::LinearAttentionConfig& config, int64_t hidden_size,
                double epsilon)
      : config_(config), hidden_size_(hidden_size), epsilon_(epsilon) {}

  [[nodiscard]] std::string_view scope() const override { return "linear_attn."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  int64_t add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     int64_t cache_layer) const override;

 private:
  // Channels that pass through the convolution: queries, keys, values.
  [[nodiscard]] int64_t conv_channels() const {
    return 2 * config_.key_width() + config_.value_width();
  }

  checkpoint::LinearAttentionConfig config_;
  int64_t hidden_size_;
  double epsilon_;
};

}  // namespace heddle::models
