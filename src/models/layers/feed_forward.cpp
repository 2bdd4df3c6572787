// SPDX-License-Identifier: Apache-2.0
#include "models/layers/feed_forward.h"

#include <utility>

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::Packing;
using checkpoint::stacked;
using checkpoint::WeightDType;
using checkpoint::WeightSpec;
using checkpoint::whole;
using graph::Value;

void SparseMoe::add_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t Is = config_.shared_intermediate_size;
  // A gate comes with a name in the singular.
  const std::string shared =
      hub + (config_.gated_shared_expert ? "shared_expert." : "shared_experts.");
  std::vector<HubLinear> entry;
  std::vector<checkpoint::CutPart> cut;
  if (has_shared()) {
    entry = {{shared + "gate_proj", Is}, {shared + "up_proj", Is}};
    cut = {{Is}, {Is}};
  }
  const auto add_whole = [&](const char* name, int64_t num_rows) {
    entry.push_back({hub + name, num_rows});
    cut.push_back({num_rows, 1, checkpoint::PartCut::kWhole});
  };
  if (!config_.router) add_whole("gate", config_.num_experts);
  if (has_gate()) add_whole("shared_expert_gate", 1);
  if (!entry.empty()) add_linear_weights(specs, ours + "entry", entry, H, rows_cut(cut));
  if (has_shared()) {
    add_linear_weights(specs, ours + "shared_down", {{shared + "down_proj", H}}, Is,
                       columns_cut({{Is}}));
  }
  if (config_.router) add_router(specs, ours, hub);
  add_experts(specs, ours, hub);
}

void SparseMoe::add_router(std::vector<WeightSpec>& specs, const std::string& ours,
                           const std::string& hub) const {
  const int64_t E = config_.num_experts;
  const Shape shape{E, hidden_size_};
  specs.push_back({.name = ours + "router",
                   .shape = shape,
                   .alternatives = {whole({hub + "gate.weight", shape})},
                   .dtype = WeightDType::kF32});
  if (!config_.router->corrected) return;
  specs.push_back({.name = ours + "correction",
                   .shape = {E},
                   .alternatives = {whole({hub + "gate.e_score_correction_bias", {E}})},
                   .dtype = WeightDType::kF32});
}

// One matrix per expert and projection, under either set of names, or all experts in one tensor.
void SparseMoe::add_experts(std::vector<WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t E = config_.num_experts;
  const int64_t I = config_.intermediate_size;
  const std::string expert = hub + "experts.#.";
  specs.push_back({.name = ours + "experts.w13",
                   .shape = {E, 2 * I, H},
                   .alternatives = {stacked(E, {{expert + "gate_proj.weight", {I, H}},
                                                {expert + "up_proj.weight", {I, H}}}),
                                    stacked(E, {{expert + "w1.weight", {I, H}},
                                                {expert + "w3.weight", {I, H}}}),
                                    whole({hub + "experts.gate_up_proj", {E, 2 * I, H}})},
                   .packing = Packing::kAlike,
                   .cut = experts_cut(rows_cut({{I}, {I}}))});
  specs.push_back({.name = ours + "experts.w2",
                   .shape = {E, H, I},
                   .alternatives = {stacked(E, {{expert + "down_proj.weight", {H, I}}}),
                                    stacked(E, {{expert + "w2.weight", {H, I}}}),
                                    whole({hub + "experts.down_proj", {E, H, I}})},
                   .packing = Packing::kAlike,
                   .cut = experts_cut(columns_cut({{I}}))});
}

Value SparseMoe::build(graph::GraphBuilder& g, Value x) const {
  // Scores decide: a product that has them is fp32.
  const DType dtype = config_.router ? g.activations() : DType::kF32;
  std::vector<LinearPart> parts;
  if (has_shared()) parts.push_back({2 * config_.shared_intermediate_size, dtype});
  if (!config_.router) parts.push_back({config_.num_experts, dtype});
  if (has_gate()) parts.push_back({1, dtype});
  const std::vector<Value> entry = linear_parts(g, x, "entry", parts);
  if (entry.size() != parts.size()) return {};

  const Value scores =
      config_.router ? linear(g, x, "router", DType::kF32) : entry[has_shared() ? 1 : 0];
  const Value y = routed(g, x, scores);
  if (!has_shared()) return y;
  Value shared = linear(g, g.silu_mul(entry[0]), "shared_down");
  if (has_gate()) shared = g.mul(shared, g.sigmoid(entry.back()));
  return g.add(y, shared);
}

Value SparseMoe::routed(graph::GraphBuilder& g, Value x, Value scores) const {
  const auto top_k = static_cast<double>(config_.num_experts_per_token);
  const double normalize = config_.normalize_top_k ? 1.0 : 0.0;
  if (!config_.router) {
    return expert_products(g, "routed_moe", x, scores, {},
                           {{"top_k", top_k}, {"normalize", normalize}});
  }
  const checkpoint::RouterConfig& router = *config_.router;
  std::vector<Value> correction;
  if (router.corrected) correction.push_back(g.weight("correction"));
  const bool two_best = router.corrected && router.num_groups > 1;
  return expert_products(g, router.corrected ? "routed_moe_corrected" : "routed_moe_scored", x,
                         scores, correction,
                         {{"top_k", top_k},
                          {"normalize", normalize},
                          {"sigmoid", router.sigmoid ? 1.0 : 0.0},
                          {"groups", static_cast<double>(router.num_groups)},
                          {"groups_kept", static_cast<double>(router.groups_kept)},
                          {"group_terms", two_best ? 2.0 : 1.0},
                          {"scale", router.scale}});
}

void SwigluMlp::add_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t I = intermediate_size_;
  add_linear_weights(specs, ours + "gate_up", {{hub + "gate_proj", I}, {hub + "up_proj", I}}, H,
                     rows_cut({{I}, {I}}));
  add_linear_weights(specs, ours + "down", {{hub + "down_proj", H}}, I, columns_cut({{I}}));
}

Value SwigluMlp::build(graph::GraphBuilder& g, Value x) const {
  return linear(g, g.silu_mul(linear(g, x, "gate_up")), "down");
}

std::unique_ptr<const FeedForward> make_feed_forward(const checkpoint::ModelConfig& config,
                                                     int64_t layer) {
  if (config.is_moe_layer[static_cast<size_t>(layer)]) {
    return std::make_unique<SparseMoe>(config.hidden_size, *config.moe);
  }
  return std::make_unique<SwigluMlp>(config.hidden_size, config.intermediate_size);
}

}  // namespace heddle::models
