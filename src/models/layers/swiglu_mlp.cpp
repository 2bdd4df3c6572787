// SPDX-License-Identifier: Apache-2.0
#include "models/layers/swiglu_mlp.h"

#include "models/layers/linear.h"

namespace heddle::models {

void SwigluMlp::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t I = intermediate_size_;
  add_linear_weights(specs, ours + "gate_up", {{hub + "gate_proj", I}, {hub + "up_proj", I}}, H);
  add_linear_weights(specs, ours + "down", {{hub + "down_proj", H}}, I);
}

graph::Value SwigluMlp::build(graph::GraphBuilder& g, graph::Value x) const {
  return linear(g, g.silu_mul(linear(g, x, "gate_up")), "down");
}

}  // namespace heddle::models
