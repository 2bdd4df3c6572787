// SPDX-License-Identifier: Apache-2.0
// PerLayerInputs: an input that every layer of Gemma 4's small models computes from the token's id,
// and the block that adds it to the residual stream at the end of the layer:
//     e = sqrt(D) E[id],  p = norm(W x0 / sqrt(H))    of all L layers at once: [T, L * D]
//     i = (p + e) / sqrt(2)                           a layer has D columns of it
//     h' = h + norm(W_out (gelu(W_in h) * i))
// x0 is the scaled embedding; the norm of p is over the D columns of each layer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/layer.h"

namespace heddle::models {

class PerLayerInputs final : public SharedInputs {
 public:
  explicit PerLayerInputs(const checkpoint::ModelConfig& config);

  void add_weights(std::vector<checkpoint::WeightSpec>& specs,
                   const std::string& hub) const override;

  // Returns the input i of each layer.
  std::vector<graph::Value> build(graph::GraphBuilder& g, graph::Value ids,
                                  graph::Value embedding) const override;

 private:
  int64_t hidden_size_, num_layers_, width_, vocabulary_;
  double epsilon_;
};

// The block that adds the per-layer input to layer `layer`.
ResidualBlock per_layer_block(const checkpoint::ModelConfig& config, size_t layer);

}  // namespace heddle::models
