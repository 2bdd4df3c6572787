// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet mixer: the delta rule with one decay per value head (delta_rule_mixer.h), its
// output normalised per head and gated. Yang, Kautz and Hatamizadeh, arXiv:2412.06464.
//     [q; k; v; z; b; a] = W_in x         y = W_out (norm(o) * silu(z))
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/layers/delta_rule_mixer.h"

namespace heddle::models {

// How the hub stores the projections of such a layer.
enum class DeltaNetTensors : uint8_t {
  kJoined,  // Qwen3-Next and Qwen3.5: at least queries, keys and values are in one tensor
  kApart,   // OLMo Hybrid: one tensor per projection, with z named g_proj; also o_norm and o_proj
};

class GatedDeltaNet final : public DeltaRuleMixer {
 public:
  GatedDeltaNet(const checkpoint::LinearAttentionConfig& config, int64_t hidden_size,
                double epsilon, DeltaNetTensors tensors = DeltaNetTensors::kJoined)
      : DeltaRuleMixer(config, hidden_size, epsilon), tensors_(tensors) {}

  [[nodiscard]] std::string_view scope() const override { return "linear_attn."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  // The weight of [q | k | v | z | b | a]: all of them read x, so they are one product.
  [[nodiscard]] checkpoint::WeightSpec joined_input(const std::string& ours,
                                                    const std::string& hub) const;
  [[nodiscard]] std::vector<checkpoint::Assembly> convolution(const std::string& hub) const;

  DeltaNetTensors tensors_;
};

}  // namespace heddle::models
