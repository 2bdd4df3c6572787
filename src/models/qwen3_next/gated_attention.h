// SPDX-License-Identifier: Apache-2.0
// Gated attention mixer: grouped-query attention with per-head query and key norms before a partial
// rotary embedding, and a sigmoid gate per channel on its output.
//     o = W_o(softmax(q k' / sqrt(D)) v * sigmoid(gate))
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "checkpoint/weight_map.h"
#include "graph/builder.h"

namespace heddle::models {

struct GatedAttention {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t hidden_size = 0;
  double epsilon = 1e-6;
  double rope_factor = 1;  // yarn's attention factor

  // `kv_layer` counts the attention layers of the model from 0. `inverse_frequencies` is a value,
  // so that all layers share one table.
  [[nodiscard]] graph::Value build(graph::GraphBuilder& g, graph::Value x, graph::Value positions,
                                   graph::Value inverse_frequencies, int64_t kv_layer) const;

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const;
};

}  // namespace heddle::models
