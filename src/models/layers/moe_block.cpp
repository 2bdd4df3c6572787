// SPDX-License-Identifier: Apache-2.0
#include "models/layers/moe_block.h"

namespace heddle::models {

using checkpoint::concatenated;
using checkpoint::stacked;
using checkpoint::whole;
using graph::Value;

Value swiglu_mlp(graph::GraphBuilder& g, Value x) {
  return g.linear(g.silu_mul(g.linear(x, "gate_up")), "down");
}

void add_swiglu_mlp_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub, int64_t hidden_size,
                            int64_t intermediate_size) {
  const int64_t H = hidden_size;
  const int64_t I = intermediate_size;
  specs.push_back({.name = ours + "gate_up",
                   .shape = {2 * I, H},
                   .alternatives = {concatenated(
                       {{hub + "gate_proj.weight", {I, H}}, {hub + "up_proj.weight", {I, H}}})}});
  specs.push_back({.name = ours + "down",
                   .shape = {H, I},
                   .alternatives = {whole({hub + "down_proj.weight", {H, I}})}});
}

Value moe_block(graph::GraphBuilder& g, const checkpoint::MoeConfig& moe, Value x) {
  const int64_t E = moe.num_experts;
  const int64_t Is = moe.shared_intermediate_size;
  const Value first = g.linear(x, "entry");
  const std::vector<Value> entry = Is > 0 ? g.split(first, {2 * Is, E, 1}) : std::vector{first};
  if (entry.empty()) return {};
  const Value router_logits = Is > 0 ? entry[1] : entry[0];
  const Value routed =
      g.apply1("routed_moe", {x, router_logits, g.weight("experts.w13"), g.weight("experts.w2")},
               {{"top_k", static_cast<double>(moe.num_experts_per_token)},
                {"normalize", moe.normalize_top_k ? 1.0 : 0.0}});
  if (Is == 0) return routed;
  const Value shared = g.linear(g.silu_mul(entry[0]), "shared_down");
  return g.add(routed, g.mul(shared, g.sigmoid(entry[2])));
}

void add_moe_block_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                           const std::string& hub, int64_t hidden_size,
                           const checkpoint::MoeConfig& moe) {
  const int64_t H = hidden_size;
  const int64_t E = moe.num_experts;
  const int64_t I = moe.intermediate_size;
  const int64_t Is = moe.shared_intermediate_size;
  const checkpoint::HubTensor router{hub + "gate.weight", {E, H}};
  if (Is > 0) {
    specs.push_back(
        {.name = ours + "entry",
         .shape = {2 * Is + E + 1, H},
         .alternatives = {concatenated({{hub + "shared_expert.gate_proj.weight", {Is, H}},
                                        {hub + "shared_expert.up_proj.weight", {Is, H}},
                                        router,
                                        {hub + "shared_expert_gate.weight", {1, H}}})}});
    specs.push_back({.name = ours + "shared_down",
                     .shape = {H, Is},
                     .alternatives = {whole({hub + "shared_expert.down_proj.weight", {H, Is}})}});
  } else {
    specs.push_back({.name = ours + "entry", .shape = {E, H}, .alternatives = {whole(router)}});
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

}  // namespace heddle::models
