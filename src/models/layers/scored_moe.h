// SPDX-License-Identifier: Apache-2.0
// The mixture of experts of the DeepSeek and Kimi families: scores of any kind, a choice limited to
// the best groups, and shared experts that every token visits, neither gated nor scaled.
//     y = sum over the chosen of w_e * SwiGLU_e(x)  +  SwiGLU_shared(x)
// How w comes about is moe_route's formula (ops/moe/moe_route.h). Dai et al., "DeepSeekMoE",
// arXiv:2401.06066. The router is a product in fp32 whatever the run's dtype: its scores decide.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

class ScoredMoe final : public FeedForward {
 public:
  // `config` has a router.
  ScoredMoe(int64_t hidden_size, const checkpoint::MoeConfig& config)
      : hidden_size_(hidden_size), config_(config) {}

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  int64_t hidden_size_;
  checkpoint::MoeConfig config_;
};

}  // namespace heddle::models
