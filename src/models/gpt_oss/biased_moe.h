// SPDX-License-Identifier: Apache-2.0
// gpt-oss's mixture of experts:
//     r = W_router x + b_router;   p = softmax over the k largest of r
//     [g; u] = W13_e x + b13_e;    y = sum over the k of p_e * (W2_e f(g, u) + b2_e)
//     f(g, u) = (u' + 1) * g' * sigmoid(alpha * g'),  g' = min(g, limit), u' = clamp(u, -limit,
//     limit)
// A softmax over the chosen logits equals a softmax over all of them, renormalised.
//
// Unquantised checkpoints store the experts' matrices input-major, with the rows of gate and up
// alternating.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

// The keys of config.json that only gpt-oss has.
struct GptOssConfig {
  double swiglu_limit = 0;
  double swiglu_alpha = 0;

  bool operator==(const GptOssConfig&) const = default;
};

class BiasedMoe final : public FeedForward {
 public:
  BiasedMoe(int64_t hidden_size, const checkpoint::MoeConfig& config, const GptOssConfig& own)
      : hidden_size_(hidden_size), config_(config), own_(own) {}

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

  [[nodiscard]] bool serves_ranks() const override { return true; }

 private:
  int64_t hidden_size_;
  checkpoint::MoeConfig config_;
  GptOssConfig own_;
};

}  // namespace heddle::models
