// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet mixer: a short causal convolution, then a recurrence over one matrix S [Dk, Dv]
// per value head. Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.
//     S <- exp(decay) S       S <- S + k (beta (v - S'k))'       o = S'q
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "checkpoint/weight_map.h"
#include "graph/builder.h"

namespace heddle::models {

struct GatedDeltaNet {
  checkpoint::LinearAttentionConfig config;
  int64_t hidden_size = 0;
  double epsilon = 1e-6;

  // `state_layer` counts the delta networks of the model from 0.
  [[nodiscard]] graph::Value build(graph::GraphBuilder& g, graph::Value x,
                                   int64_t state_layer) const;

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const;

  // Channels that pass through the convolution: queries, keys, values.
  [[nodiscard]] int64_t conv_channels() const {
    return 2 * config.key_width() + config.value_width();
  }
};

}  // namespace heddle::models
