// SPDX-License-Identifier: Apache-2.0
#include "models/gemma4/gemma4_experts.h"

#include <cmath>

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::WeightDType;
using checkpoint::whole;
using graph::Value;

void Gemma4Experts::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                                const std::string& hub) const {
  const int64_t H = hidden_size_, E = experts_.num_experts;
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm_1",
                           "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"}) {
    add_norm_weight(specs, ours + norm, hub + norm + ".weight", H, 0);
  }
  add_norm_weight(specs, ours + "router_norm", hub + "router.scale", H, 0);
  mlp_.add_weights(specs, ours, hub + "mlp.");
  specs.push_back({.name = ours + "router",
                   .shape = {E, H},
                   .alternatives = {whole({hub + "router.proj.weight", {E, H}})},
                   .dtype = WeightDType::kF32});
  specs.push_back({.name = ours + "expert_scales",
                   .shape = {E},
                   .alternatives = {whole({hub + "router.per_expert_scale", {E}})},
                   .dtype = WeightDType::kF32,
                   .initial = checkpoint::Initial::kAroundOne});
  add_expert_weights(specs, ours, hub, H, experts_);
}

Value Gemma4Experts::build(graph::GraphBuilder& g, Value x) const {
  const auto norm = [&](Value of, const char* name) { return g.rms_norm(of, name, epsilon_); };
  const Value dense =
      norm(mlp_.build(g, norm(x, "pre_feedforward_layernorm")), "post_feedforward_layernorm_1");
  const double scale = 1 / std::sqrt(static_cast<double>(hidden_size_));
  const Value scores = linear(g, g.scale(norm(x, "router_norm"), scale), "router", DType::kF32);
  const Value routed =
      expert_products(g, "routed_moe_scaled", norm(x, "pre_feedforward_layernorm_2"), scores,
                      {g.weight("expert_scales")},
                      {{"top_k", static_cast<double>(experts_.num_experts_per_token)},
                       {"normalize", 1},
                       {"geglu", 1}});
  return g.add(dense, norm(routed, "post_feedforward_layernorm_2"));
}

}  // namespace heddle::models
