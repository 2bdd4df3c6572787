// SPDX-License-Identifier: Apache-2.0
// Gemma 4's MLP and experts, which are added; x is the residual stream before any norm:
//     y = norm(mlp(norm(x))) + norm(sum over the chosen e of w_e expert_e(norm(x)))
//     p = softmax(W (norm(x) * s / sqrt(H))),  w_e = p_e / (sum of the chosen p) * scale_e
// Each norm has its own weight; the weight of the router's norm is s.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/feed_forward.h"

namespace heddle::models {

class Gemma4Experts final : public FeedForward {
 public:
  // `config` must have experts.
  Gemma4Experts(const checkpoint::ModelConfig& config, const MlpOptions& mlp)
      : hidden_size_(config.hidden_size),
        epsilon_(config.rms_norm_eps),
        experts_(*config.moe),
        mlp_(config.hidden_size, config.intermediate_size, mlp) {}

  // `hub` is the layer's prefix.
  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  int64_t hidden_size_;
  double epsilon_;
  checkpoint::MoeConfig experts_;
  GatedMlp mlp_;
};

}  // namespace heddle::models
