// SPDX-License-Identifier: Apache-2.0
// The feed-forward blocks that families share: a dense gated MLP, and a mixture of SwiGLU experts.
//
// Threading: values, used while a model loads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

// The function f in W_down(f(W_gate x) * (W_up x)).
enum class GatedActivation : uint8_t { kSilu, kGelu };

// The hub's names of the three products.
struct MlpNames {
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* fused = "gate_up_proj";  // one tensor with gate and up
};

struct MlpOptions {
  GatedActivation activation = GatedActivation::kSilu;
  double limit = 0;       // bound on f(W_gate x) and W_up x, only for kSilu (Step 3.5); 0: no bound
  double gate_scale = 1;  // factor on W_gate x
  bool bias = false;      // each of the three products has a bias
  bool is_fused = false;  // the hub has one tensor gate_up_proj instead of two
  MlpNames names = {};
};

// SwiGLU and its variants: W_down(f(W_gate x) * (W_up x)). Shazeer, arXiv:2002.05202. Gate and up
// are computed as one product.
class GatedMlp final : public FeedForward {
 public:
  GatedMlp(int64_t hidden_size, int64_t intermediate_size, const MlpOptions& options = {})
      : hidden_size_(hidden_size), intermediate_size_(intermediate_size), options_(options) {}

  [[nodiscard]] bool serves_ranks() const override { return true; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  int64_t hidden_size_;
  int64_t intermediate_size_;
  MlpOptions options_;
};

// W_down max(W_up x, 0)^2. So et al., "Primer", arXiv:2109.08668.
class SquaredReluMlp final : public FeedForward {
 public:
  SquaredReluMlp(int64_t hidden_size, int64_t intermediate_size, const MlpNames& names = {})
      : hidden_size_(hidden_size), intermediate_size_(intermediate_size), names_(names) {}

  [[nodiscard]] bool serves_ranks() const override { return true; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  int64_t hidden_size_;
  int64_t intermediate_size_;
  MlpNames names_;
};

// A mixture of SwiGLU experts, with a shared expert if the config has one:
//     y = sum over the chosen e of w_e * SwiGLU_e(x)  +  s * SwiGLU_shared(x)
// w is the softmax of the router's scores over all experts or, with a RouterConfig, what moe_route
// makes of them (ops/moe/moe_route.h); s is sigmoid(w_s . x) for a gated shared expert,
// otherwise 1. Shazeer et al., "Outrageously Large Neural Networks", arXiv:1701.06538; Dai et al.,
// "DeepSeekMoE", arXiv:2401.06066. Without gates (MoeConfig::has_gates) all of them are
// SquaredReluMlp; with a latent size the chosen ones read W_1 x, and W_2 is applied to their sum.
//
// The shared expert's two products, its gate and a plain router all read x, so they are computed as
// one product. A router with a RouterConfig is a separate product in fp32, whatever the run's
// dtype, because small differences in its scores change the choice. A product that includes a plain
// router is in fp32 for the same reason.
class SparseMoe final : public FeedForward {
 public:
  // `limit`: bound on both factors of the routed experts' activation (Step 3.5); 0: no bound.
  SparseMoe(int64_t hidden_size, const checkpoint::MoeConfig& config, double limit = 0)
      : hidden_size_(hidden_size), config_(config), limit_(limit) {}

  [[nodiscard]] bool serves_ranks() const override { return true; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override;

 private:
  [[nodiscard]] bool has_shared() const { return config_.shared_intermediate_size > 0; }

  [[nodiscard]] bool has_gate() const { return has_shared() && config_.gated_shared_expert; }

  void add_router(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                  const std::string& hub) const;
  graph::Value routed(graph::GraphBuilder& g, graph::Value x, graph::Value scores) const;

  int64_t hidden_size_;
  checkpoint::MoeConfig config_;
  double limit_;
};

// Adds the weights of experts, "experts.w13" and "experts.w2" below `ours`, with all the layouts in
// which families store them under the prefix `hub`. `hidden_size` is the width of the experts'
// input.
void add_expert_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                        const std::string& hub, int64_t hidden_size,
                        const checkpoint::MoeConfig& config);

// Experts if config.is_moe_layer is true for the layer, otherwise an MLP.
std::unique_ptr<const FeedForward> make_feed_forward(const checkpoint::ModelConfig& config,
                                                     int64_t layer, const MlpOptions& mlp = {});

}  // namespace heddle::models
