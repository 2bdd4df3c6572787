// SPDX-License-Identifier: Apache-2.0
// SwiGLU: W_down(silu(W_gate x) * (W_up x)). Shazeer, arXiv:2002.05202. Gate and up are one
// product.
#pragma once

#include <string>
#include <vector>

#include "models/layers/block.h"

namespace heddle::models {

class SwigluMlp final : public FeedForward {
 public:
  SwigluMlp(int64_t hidden_size, int64_t intermediate_size)
      : hidden_size_(hidden_size), intermediate_size_(intermediate_size) {}

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  int64_t hidden_size_;
  int64_t intermediate_size_;
};

}  // namespace heddle::models
