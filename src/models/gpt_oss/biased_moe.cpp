// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_oss/biased_moe.h"

#include <utility>

#include <fmt/format.h>

#include "checkpoint/interleaved_rows.h"
#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::Packing;
using checkpoint::RowForm;
using checkpoint::RowRun;
using checkpoint::WeightDType;
using graph::Value;

namespace {

// One run per expert, because a run must not cross from one expert's matrix to the next.
std::vector<RowRun> rows_of_each(int64_t num_experts, int64_t num_rows) {
  std::vector<RowRun> runs;
  for (int64_t e = 0; e < num_experts; ++e) {
    runs.push_back({e * num_rows, e * num_rows, num_rows});
  }
  return runs;
}

// The biases of all experts, from one stored tensor for each of the projections.
checkpoint::Assembly biases_of_each(const std::string& experts, int64_t num_experts,
                                    int64_t num_rows,
                                    std::initializer_list<std::string_view> projections) {
  checkpoint::Assembly assembly;
  int64_t target_row = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    for (const std::string_view projection : projections) {
      assembly.push_back(
          {.tensor = {fmt::format("{}{}.{}_proj.bias", experts, e, projection), {num_rows}},
           .runs = {{.target_row = target_row, .num_rows = num_rows}},
           .form = RowForm::kElement});
      target_row += num_rows;
    }
  }
  return assembly;
}

// The name pattern, with # for the expert, of matrices from GGUF files (translate_gpt_oss()). The
// hub stores all experts of a layer in one tensor, input-major.
std::string of_each(const std::string& experts, std::string_view projection) {
  return fmt::format("{}#.{}_proj.weight", experts, projection);
}

}  // namespace

void BiasedMoe::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t E = config_.num_experts;
  const int64_t I = config_.intermediate_size;
  const std::string experts = hub + "experts.";
  const std::vector<RowRun> gate_up = checkpoint::split_gate_up_rows(E, I);
  add_linear_weights(specs, ours + "router", {{hub + "router", E}}, H, /*cut=*/{}, /*bias=*/true);
  specs.push_back({.name = ours + "experts.w13",
                   .shape = {E, 2 * I, H},
                   .alternatives = {{{.tensor = {experts + "gate_up_proj", {E, H, 2 * I}},
                                      .runs = gate_up,
                                      .form = RowForm::kInputMajor}},
                                    checkpoint::stacked(E, {{of_each(experts, "gate"), {I, H}},
                                                            {of_each(experts, "up"), {I, H}}})},
                   .packing = Packing::kAlike,
                   .cut = experts_cut(rows_cut({{I}, {I}}))});
  specs.push_back({.name = ours + "experts.w13_bias",
                   .shape = {E, 2 * I},
                   .alternatives = {{{.tensor = {experts + "gate_up_proj_bias", {E, 2 * I}},
                                      .runs = gate_up,
                                      .form = RowForm::kElement}},
                                    biases_of_each(experts, E, I, {"gate", "up"})},
                   .dtype = WeightDType::kF32,
                   .cut = experts_cut(rows_cut({{I}, {I}}))});
  specs.push_back({.name = ours + "experts.w2",
                   .shape = {E, H, I},
                   .alternatives = {{{.tensor = {experts + "down_proj", {E, I, H}},
                                      .runs = rows_of_each(E, H),
                                      .form = RowForm::kInputMajor}},
                                    checkpoint::stacked(E, {{of_each(experts, "down"), {H, I}}})},
                   .packing = Packing::kAlike,
                   .cut = experts_cut(columns_cut({{I}}))});
  specs.push_back({.name = ours + "experts.w2_bias",
                   .shape = {E, H},
                   .alternatives = {checkpoint::whole({experts + "down_proj_bias", {E, H}}),
                                    biases_of_each(experts, E, H, {"down"})},
                   .dtype = WeightDType::kF32,
                   .cut = experts_cut({})});
}

Value BiasedMoe::build(graph::GraphBuilder& g, Value x) const {
  const Value scores = linear(g, x, "router", DType::kF32);
  ops::Attrs attrs{{"top_k", static_cast<double>(config_.num_experts_per_token)},
                   {"normalize", config_.normalize_top_k ? 1.0 : 0.0},
                   {"swiglu_limit", own_.swiglu_limit},
                   {"swiglu_alpha", own_.swiglu_alpha}};
  // If each rank has a share of the width of every expert, the outputs of the ranks are added, and
  // only rank 0 adds the bias of the output.
  const checkpoint::Rank& rank = g.rank();
  const bool shares_width = !rank.ranks.exact && config_.num_experts % rank.ranks.count != 0;
  if (shares_width && rank.index > 0) attrs.set("adds_w2_bias", 0);
  return sum_over_ranks(
      g, expert_products(g, "routed_moe_bias", x, scores,
                         {g.weight("experts.w13_bias"), g.weight("experts.w2_bias")}, attrs));
}

}  // namespace heddle::models
