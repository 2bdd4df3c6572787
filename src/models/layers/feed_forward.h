// SPDX-License-Identifier: Apache-2.0
// The feed-forward blocks that families share: a dense SwiGLU, and a mixture of SwiGLU experts.
//
// Threading: values, used while a model loads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

// SwiGLU: W_down(silu(W_gate x) * (W_up x)). Shazeer, arXiv:2002.05202. Gate and up are one
// product.
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

// A mixture of SwiGLU experts, and a shared one that every token visits where the config has it:
//     y = sum over the chosen e of w_e * SwiGLU_e(x)  +  s * SwiGLU_shared(x)
// w is the softmax of the router's scores over all experts or, with a RouterConfig, what moe_route
// makes of them (ops/moe/moe_route.h); s is sigmoid(w_s . x) for a gated shared expert,
// otherwise 1. Shazeer et al., "Outrageously Large Neural Networks", arXiv:1701.06538; Dai et al.,
// "DeepSeekMoE", arXiv:2401.06066.
//
// The shared expert's two products, its gate and a plain router read x once: they are one product.
// A router with a RouterConfig is a product of its own, in fp32 whatever the run's dtype: its
// scores decide. So is a product that a plain router is a part of.
class SparseMoe final : public FeedForward {
 public:
  SparseMoe(int64_t hidden_size, const checkpoint::MoeConfig& config)
      : hidden_size_(hidden_size), config_(config) {}

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  [[nodiscard]] bool has_shared() const { return config_.shared_intermediate_size > 0; }

  [[nodiscard]] bool has_gate() const { return has_shared() && config_.gated_shared_expert; }

  void add_router(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                  const std::string& hub) const;
  void add_experts(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const;
  graph::Value routed(graph::GraphBuilder& g, graph::Value x, graph::Value scores) const;

  int64_t hidden_size_;
  checkpoint::MoeConfig config_;
};

// A SwiGLU MLP, or experts where config.is_moe_layer has the layer.
std::unique_ptr<const FeedForward> make_feed_forward(const checkpoint::ModelConfig& config,
                                                     int64_t layer);

}  // namespace heddle::models
