// SPDX-License-Identifier: Apache-2.0
// A mixture of SwiGLU experts, and a shared one behind a sigmoid gate where the config has it:
//     sum over the top k of p_e * SwiGLU_e(x)  +  sigmoid(w . x) * SwiGLU_shared(x)
// with p the softmax over all experts, renormalised over the chosen ones if the config says so.
// Shazeer et al., "Outrageously Large Neural Networks", arXiv:1701.06538. The shared expert's two
// products, its gate and the router read x once: they are one product.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

class SparseMoe final : public FeedForward {
 public:
  SparseMoe(int64_t hidden_size, const checkpoint::MoeConfig& config)
      : hidden_size_(hidden_size), config_(config) {}

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  int64_t hidden_size_;
  checkpoint::MoeConfig config_;
};

}  // namespace heddle::models
