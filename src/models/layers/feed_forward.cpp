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

namespace {

// A vector that is stored as [1, E].
checkpoint::Assembly one_row(const std::string& name, int64_t E) {
  return {
      {.tensor = {name, {1, E}}, .runs = {{.num_rows = E}}, .form = checkpoint::RowForm::kElement}};
}

// All experts' matrices [E, N, K] in one tensor, which some files have as [E, K, N].
checkpoint::Assembly all_experts(const std::string& name, int64_t E, int64_t N, int64_t K,
                                 bool input_major) {
  if (!input_major) return whole({name, {E, N, K}});
  checkpoint::HubPiece piece{.tensor = {name, {E, K, N}}, .form = checkpoint::RowForm::kInputMajor};
  for (int64_t e = 0; e < E; ++e) {
    piece.runs.push_back({.source_row = e * N, .target_row = e * N, .num_rows = N});
  }
  return {std::move(piece)};
}

// The gate and up projections of all experts, two tensors [E, I, H], as one [E, 2 I, H].
checkpoint::Assembly gate_then_up(const std::string& hub, int64_t E, int64_t I, int64_t H) {
  checkpoint::Assembly assembly;
  for (const auto& [name, first] :
       {std::pair("gate_proj.weight", int64_t{0}), {"up_proj.weight", I}}) {
    checkpoint::HubPiece piece{.tensor = {hub + name, {E, I, H}}};
    for (int64_t e = 0; e < E; ++e) {
      piece.runs.push_back({.source_row = e * I, .target_row = e * 2 * I + first, .num_rows = I});
    }
    assembly.push_back(std::move(piece));
  }
  return assembly;
}

}  // namespace

void SparseMoe::add_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t Is = config_.shared_intermediate_size;
  // The hub's name is singular if the shared expert is gated.
  const std::string shared =
      hub + (config_.gated_shared_expert ? "shared_expert." : "shared_experts.");
  std::vector<HubLinear> entry;
  std::vector<checkpoint::CutPart> cut;
  if (has_shared()) {
    if (config_.has_gates) entry = {{shared + "gate_proj", Is}};
    entry.push_back({shared + "up_proj", Is});
    cut.assign(entry.size(), {Is});
  }
  const auto add_whole = [&](const std::string& name, int64_t num_rows) {
    entry.push_back({hub + name, num_rows});
    cut.push_back({num_rows, 1, checkpoint::PartCut::kWhole});
  };
  if (!config_.router) add_whole(config_.router_name, config_.num_experts);
  if (has_gate()) add_whole("shared_expert_gate", 1);
  if (!entry.empty()) add_linear_weights(specs, ours + "entry", entry, H, rows_cut(cut));
  if (has_shared()) {
    add_linear_weights(specs, ours + "shared_down", {{shared + "down_proj", H}}, Is,
                       columns_cut({{Is}}));
  }
  if (config_.router) add_router(specs, ours, hub);
  const int64_t latent = config_.latent_size;
  if (latent > 0) {
    add_linear_weights(specs, ours + "latent_in", {{hub + "fc1_latent_proj", latent}}, H);
    add_linear_weights(specs, ours + "latent_out", {{hub + "fc2_latent_proj", H}}, latent);
  }
  add_expert_weights(specs, ours, hub, latent > 0 ? latent : H, config_);
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
  const std::string name = "e_score_correction_bias";
  specs.push_back(
      {.name = ours + "correction",
       .shape = {E},
       .alternatives = {whole({hub + "gate." + name, {E}}), whole({hub + name, {E}}),  // MiniMax-M2
                        one_row(hub + "moe_statics." + name, E),                       // ERNIE
                        whole({hub + "router_bias", {E}}),                             // Step
                        whole({hub + "expert_bias", {E}})},                            // LFM2
       .dtype = WeightDType::kF32});
}

// Layouts: one matrix per expert and projection, under either of two sets of names; all experts in
// one tensor; or one tensor for each projection.
void add_expert_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                        const std::string& hub, int64_t hidden_size,
                        const checkpoint::MoeConfig& config) {
  const int64_t H = hidden_size;
  const int64_t E = config.num_experts;
  const int64_t I = config.intermediate_size;
  const std::string expert = hub + "experts.#.";
  if (!config.has_gates) {
    specs.push_back({.name = ours + "experts.w13",
                     .shape = {E, I, H},
                     .alternatives = {stacked(E, {{expert + "up_proj.weight", {I, H}}}),
                                      whole({hub + "experts.up_proj", {E, I, H}})},
                     .packing = Packing::kAlike,
                     .cut = experts_cut(rows_cut({{I}}))});
  } else {
    specs.push_back(
        {.name = ours + "experts.w13",
         .shape = {E, 2 * I, H},
         .alternatives =
             {stacked(E,
                      {{expert + "gate_proj.weight", {I, H}}, {expert + "up_proj.weight", {I, H}}}),
              stacked(E, {{expert + "w1.weight", {I, H}}, {expert + "w3.weight", {I, H}}}),
              all_experts(hub + "experts.gate_up_proj", E, 2 * I, H, config.input_major),
              whole({hub + "input_linear.weight", {E, 2 * I, H}}), gate_then_up(hub, E, I, H)},
         .packing = Packing::kAlike,
         .cut = experts_cut(rows_cut({{I}, {I}}))});
  }
  specs.push_back(
      {.name = ours + "experts.w2",
       .shape = {E, H, I},
       .alternatives = {stacked(E, {{expert + "down_proj.weight", {H, I}}}),
                        stacked(E, {{expert + "w2.weight", {H, I}}}),
                        all_experts(hub + "experts.down_proj", E, H, I, config.input_major),
                        whole({hub + "output_linear.weight", {E, H, I}}),
                        whole({hub + "down_proj.weight", {E, H, I}})},
       .packing = Packing::kAlike,
       .cut = experts_cut(columns_cut({{I}}))});
}

Value SparseMoe::build(graph::GraphBuilder& g, Value x) const {
  // A product with router scores is in fp32, because small differences change the choice of
  // experts.
  const DType dtype = config_.router ? g.activations() : DType::kF32;
  std::vector<LinearPart> parts;
  if (has_shared()) {
    const int64_t own = checkpoint::own_range({config_.shared_intermediate_size}, g.rank()).count;
    parts.push_back({(config_.has_gates ? 2 : 1) * own, dtype});
  }
  if (!config_.router) parts.push_back({config_.num_experts, dtype});
  if (has_gate()) parts.push_back({1, dtype});
  const std::vector<Value> entry = linear_parts(g, x, "entry", parts);
  if (entry.size() != parts.size()) return {};

  const Value scores =
      config_.router ? linear(g, x, "router", DType::kF32) : entry[has_shared() ? 1 : 0];
  Value y = routed(g, config_.latent_size > 0 ? linear(g, x, "latent_in") : x, scores);
  if (config_.latent_size > 0) y = linear(g, y, "latent_out");
  if (!has_shared()) return sum_over_ranks(g, y);
  Value shared = linear_term(
      g, config_.has_gates ? g.silu_mul(entry[0]) : g.apply1("squared_relu", {entry[0]}),
      "shared_down", hidden_size_);
  if (has_gate()) shared = g.mul(shared, g.sigmoid(entry.back()));
  return sum_over_ranks(g, g.add(y, shared));
}

Value SparseMoe::routed(graph::GraphBuilder& g, Value x, Value scores) const {
  ops::Attrs attrs{{"top_k", static_cast<double>(config_.num_experts_per_token)},
                   {"normalize", config_.normalize_top_k ? 1.0 : 0.0}};
  if (limit_ > 0) attrs.set("bounded_swiglu", limit_);
  if (!config_.has_gates) attrs.set("squared_relu", 1);
  if (!config_.router) return expert_products(g, "routed_moe", x, scores, {}, attrs);
  const checkpoint::RouterConfig& router = *config_.router;
  std::vector<Value> correction;
  if (router.corrected) correction.push_back(g.weight("correction"));
  const bool two_best = router.corrected && router.num_groups > 1;
  for (const auto& [name, value] : {std::pair("sigmoid", router.sigmoid ? 1.0 : 0.0),
                                    {"groups", static_cast<double>(router.num_groups)},
                                    {"groups_kept", static_cast<double>(router.groups_kept)},
                                    {"group_terms", two_best ? 2.0 : 1.0},
                                    {"scale", router.scale},
                                    {"sum_epsilon", router.sum_epsilon}}) {
    attrs.set(name, value);
  }
  if (router.nearness) attrs.set("nearness", *router.nearness);
  return expert_products(g, router.corrected ? "routed_moe_corrected" : "routed_moe_scored", x,
                         scores, correction, attrs);
}

void GatedMlp::add_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                           const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t I = intermediate_size_;
  const std::vector<HubLinear> fused{{hub + options_.names.fused, 2 * I}};
  const MlpNames& names = options_.names;
  const std::vector<HubLinear> two{{hub + names.gate, I}, {hub + names.up, I}};
  const auto gate_up = [&](const std::vector<HubLinear>& parts) {
    std::vector<WeightSpec> weights;
    add_linear_weights(weights, ours + "gate_up", parts, H, rows_cut({{I}, {I}}), options_.bias);
    return weights;
  };
  if (options_.is_fused) {  // GGUF files may store gate and up separately even so
    add_either(specs, gate_up(fused), gate_up(two));
  } else {
    std::ranges::move(gate_up(two), std::back_inserter(specs));
  }
  add_linear_weights(specs, ours + "down", {{hub + names.down, H}}, I, columns_cut({{I}}),
                     options_.bias);
}

Value GatedMlp::build(graph::GraphBuilder& g, Value x) const {
  Value gate_up = linear(g, x, "gate_up");
  if (options_.gate_scale != 1) {
    const int64_t own = checkpoint::own_range({intermediate_size_}, g.rank()).count;
    const std::vector<Value> parts = g.split(gate_up, {own, own});
    if (parts.size() != 2) return {};
    gate_up = g.concat(g.scale(parts[0], options_.gate_scale), parts[1]);
  }
  if (options_.limit > 0) {
    return summed_linear(g, g.gated("bounded_silu_mul", gate_up, {{"limit", options_.limit}}),
                         "down", hidden_size_);
  }
  const bool is_silu = options_.activation == GatedActivation::kSilu;
  return summed_linear(g, is_silu ? g.silu_mul(gate_up) : g.gated("gelu_mul", gate_up), "down",
                       hidden_size_);
}

void SquaredReluMlp::add_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                                 const std::string& hub) const {
  add_linear_weights(specs, ours + "up", {{hub + names_.up, intermediate_size_}}, hidden_size_,
                     rows_cut({{intermediate_size_}}));
  add_linear_weights(specs, ours + "down", {{hub + names_.down, hidden_size_}}, intermediate_size_,
                     columns_cut({{intermediate_size_}}));
}

Value SquaredReluMlp::build(graph::GraphBuilder& g, Value x) const {
  return summed_linear(g, g.apply1("squared_relu", {linear(g, x, "up")}), "down", hidden_size_);
}

std::unique_ptr<const FeedForward> make_feed_forward(const checkpoint::ModelConfig& config,
                                                     int64_t layer, const MlpOptions& mlp) {
  if (config.is_moe_layer[static_cast<size_t>(layer)]) {
    return std::make_unique<SparseMoe>(config.hidden_size, *config.moe);
  }
  return std::make_unique<GatedMlp>(config.hidden_size, config.intermediate_size, mlp);
}

}  // namespace heddle::models
