// SPDX-License-Identifier: Apache-2.0
#include "models/layers/sparse_moe.h"

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::stacked;
using checkpoint::whole;
using graph::Value;

void SparseMoe::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t E = config_.num_experts;
  const int64_t I = config_.intermediate_size;
  const int64_t Is = config_.shared_intermediate_size;
  const HubLinear router{hub + "gate", E};
  if (Is > 0) {
    add_linear_weights(specs, ours + "entry",
                       {{hub + "shared_expert.gate_proj", Is},
                        {hub + "shared_expert.up_proj", Is},
                        router,
                        {hub + "shared_expert_gate", 1}},
                       H);
    add_linear_weights(specs, ours + "shared_down", {{hub + "shared_expert.down_proj", H}}, Is);
  } else {
    add_linear_weights(specs, ours + "entry", {router}, H);
  }
  specs.push_back({.name = ours + "experts.w13",
                   .shape = {E, 2 * I, H},
                   .alternatives = {stacked(E, {{hub + "experts.#.gate_proj.weight", {I, H}},
                                                {hub + "experts.#.up_proj.weight", {I, H}}}),
                                    whole({hub + "experts.gate_up_proj", {E, 2 * I, H}})}});
  specs.push_back({.name = ours + "experts.w2",
                   .shape = {E, H, I},
                   .alternatives = {stacked(E, {{hub + "experts.#.down_proj.weight", {H, I}}}),
                                    whole({hub + "experts.down_proj", {E, H, I}})}});
}

Value SparseMoe::build(graph::GraphBuilder& g, Value x) const {
  const int64_t E = config_.num_experts;
  const int64_t Is = config_.shared_intermediate_size;
  const Value first = linear(g, x, "entry");
  const std::vector<Value> entry = Is > 0 ? g.split(first, {2 * Is, E, 1}) : std::vector{first};
  if (entry.empty()) return {};
  const Value router_logits = Is > 0 ? entry[1] : entry[0];
  const Value routed =
      g.apply1("routed_moe", {x, router_logits, g.weight("experts.w13"), g.weight("experts.w2")},
               {{"top_k", static_cast<double>(config_.num_experts_per_token)},
                {"normalize", config_.normalize_top_k ? 1.0 : 0.0}});
  if (Is == 0) return routed;
  const Value shared = linear(g, g.silu_mul(entry[0]), "shared_down");
  return g.add(routed, g.mul(shared, g.sigmoid(entry[2])));
}

}  // namespace heddle::models
