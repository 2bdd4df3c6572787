// SPDX-License-Identifier: Apache-2.0
#include "models/layers/scored_moe.h"

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::stacked;
using checkpoint::WeightDType;
using checkpoint::whole;
using graph::Value;

void ScoredMoe::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t E = config_.num_experts;
  const int64_t I = config_.intermediate_size;
  const int64_t Is = config_.shared_intermediate_size;
  specs.push_back({.name = ours + "router",
                   .shape = {E, H},
                   .alternatives = {whole({hub + "gate.weight", {E, H}})},
                   .dtype = WeightDType::kF32});
  if (config_.router->corrected) {
    specs.push_back({.name = ours + "correction",
                     .shape = {E},
                     .alternatives = {whole({hub + "gate.e_score_correction_bias", {E}})},
                     .dtype = WeightDType::kF32});
  }
  if (Is > 0) {
    add_linear_weights(
        specs, ours + "shared_gate_up",
        {{hub + "shared_experts.gate_proj", Is}, {hub + "shared_experts.up_proj", Is}}, H);
    add_linear_weights(specs, ours + "shared_down", {{hub + "shared_experts.down_proj", H}}, Is);
  }
  // Kimi-Linear says w1, w3 and w2 for gate, up and down.
  specs.push_back({.name = ours + "experts.w13",
                   .shape = {E, 2 * I, H},
                   .alternatives = {stacked(E, {{hub + "experts.#.gate_proj.weight", {I, H}},
                                                {hub + "experts.#.up_proj.weight", {I, H}}}),
                                    stacked(E, {{hub + "experts.#.w1.weight", {I, H}},
                                                {hub + "experts.#.w3.weight", {I, H}}}),
                                    whole({hub + "experts.gate_up_proj", {E, 2 * I, H}})}});
  specs.push_back({.name = ours + "experts.w2",
                   .shape = {E, H, I},
                   .alternatives = {stacked(E, {{hub + "experts.#.down_proj.weight", {H, I}}}),
                                    stacked(E, {{hub + "experts.#.w2.weight", {H, I}}}),
                                    whole({hub + "experts.down_proj", {E, H, I}})}});
}

Value ScoredMoe::build(graph::GraphBuilder& g, Value x) const {
  const checkpoint::RouterConfig& router = *config_.router;
  std::vector<Value> inputs{x, linear(g, x, "router"), g.weight("experts.w13"),
                            g.weight("experts.w2")};
  if (router.corrected) inputs.push_back(g.weight("correction"));
  const bool two_best = router.corrected && router.num_groups > 1;
  const Value routed =
      g.apply1(router.corrected ? "routed_moe_corrected" : "routed_moe_scored", std::move(inputs),
               {{"top_k", static_cast<double>(config_.num_experts_per_token)},
                {"normalize", config_.normalize_top_k ? 1.0 : 0.0},
                {"sigmoid", router.sigmoid ? 1.0 : 0.0},
                {"groups", static_cast<double>(router.num_groups)},
                {"groups_kept", static_cast<double>(router.groups_kept)},
                {"group_terms", two_best ? 2.0 : 1.0},
                {"scale", router.scale}});
  if (config_.shared_intermediate_size == 0) return routed;
  return g.add(routed, linear(g, g.silu_mul(linear(g, x, "shared_gate_up")), "shared_down"));
}

}  // namespace heddle::models
