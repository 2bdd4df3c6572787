// SPDX-License-Identifier: Apache-2.0
#include "models/layers/linear.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "checkpoint/interleaved_rows.h"
#include "core/check.h"
#include "models/layers/adapter_names.h"

namespace heddle::models {

namespace {

using checkpoint::Assembly;
using checkpoint::CutKind;
using checkpoint::CutPart;
using checkpoint::RowRun;
using checkpoint::WeightCut;
using checkpoint::WeightDType;

constexpr std::string_view kBias = ".bias";

int64_t num_rows(const std::vector<HubLinear>& parts) {
  int64_t rows = 0;
  for (const HubLinear& part : parts) rows += part.num_rows;
  return rows;
}

// A range of a weight's rows.
struct Rows {
  int64_t first = 0;
  int64_t count = 0;
};

// Adds the products of the rows' adapters to y = x W^T, if the runner offers adapters for this
// weight. y begins with column `first_row` of the weight's product.
graph::Value with_adapters(graph::GraphBuilder& g, graph::Value x, graph::Value y,
                           std::string_view name, int64_t first_row) {
  const auto named = [&](std::string_view ending) {
    return std::string(name) + std::string(ending);
  };
  const ops::SymbolicDim rows = g.meta(x)[0];
  const bool of_logits = rows == ops::SymbolicDim::of(ops::Symbol::kLogits);
  if (!of_logits && !(rows == ops::SymbolicDim::of(ops::Symbol::kTokens))) return y;
  if (!g.has_weight(named(kAdapterA))) return y;
  graph::Value slots, scales;
  {
    const graph::GraphRootScope root(g, "");
    slots = g.weight(of_logits ? kAdapterLogitSlots : kAdapterSlots);
    scales = g.weight(kAdapterScales);
  }
  const graph::Value h = g.apply1("adapter_shrink", {x, g.weight(named(kAdapterA)), slots, scales});
  return g.apply1("adapter_expand",
                  {y, h, g.weight(named(kAdapterB)), g.weight(named(kAdapterParts)), slots},
                  {{"first", static_cast<double>(first_row)}});
}

// The product of x and the weight `name`, plus the bias if the layer has one. With `rows`, only
// these rows of the weight and of the bias are used.
graph::Value product(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                     std::optional<Rows> rows, DType dtype) {
  const std::string bias = std::string(name) + std::string(kBias);
  if (rows) {
    const auto of = [&](std::string_view weight) {
      return g.weight_rows(weight, rows->first, rows->count);
    };
    const graph::Value y =
        g.linear(x, of(name), g.has_weight(bias) ? of(bias) : graph::Value{}, dtype);
    return with_adapters(g, x, y, name, rows->first);
  }
  const graph::Value y =
      g.linear(x, g.weight(name), g.has_weight(bias) ? g.weight(bias) : graph::Value{}, dtype);
  return with_adapters(g, x, y, name, 0);
}

// The tensors of `parts` whose names end in `suffix`, end to end. Rows have in_features elements
// or, if that is 0, one element.
Assembly assemble(const std::vector<HubLinear>& parts, std::string_view suffix,
                  int64_t in_features) {
  Assembly assembly;
  int64_t first_row = 0;
  for (const HubLinear& part : parts) {
    std::vector<RowRun> runs = part.runs;
    if (runs.empty()) runs.push_back({.num_rows = part.num_rows});
    assembly.push_back(
        {.tensor = {part.name + std::string(suffix),
                    in_features > 0 ? Shape{part.num_rows, in_features} : Shape{part.num_rows}},
         .runs = checkpoint::shifted(std::move(runs), first_row)});
    first_row += part.num_rows;
  }
  return assembly;
}

}  // namespace

void add_linear_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                        const std::vector<HubLinear>& parts, int64_t in_features, WeightCut cut,
                        bool bias) {
  specs.push_back({.name = ours,
                   .shape = {num_rows(parts), in_features},
                   .alternatives = {assemble(parts, ".weight", in_features)},
                   .cut = cut});
  if (!bias) return;
  // Biases are large in some heads, so they are stored and added in fp32.
  specs.push_back({.name = ours + std::string(kBias),
                   .shape = {num_rows(parts)},
                   .alternatives = {assemble(parts, kBias, 0)},
                   .dtype = WeightDType::kF32,
                   .cut = cut.kind == CutKind::kRows ? std::move(cut) : WeightCut()});
}

WeightCut rows_cut(std::vector<CutPart> parts) {
  return {.kind = CutKind::kRows, .parts = std::move(parts)};
}

WeightCut columns_cut(std::vector<CutPart> parts) {
  return {.kind = CutKind::kColumns, .parts = std::move(parts)};
}

WeightCut experts_cut(WeightCut within) {
  return {.kind = CutKind::kWholeExperts, .parts = std::move(within.parts), .within = within.kind};
}

namespace {

CutPart vocabulary_part(int64_t vocab_size) {
  constexpr int64_t kRowsTogether = 64;
  const bool is_large = vocab_size >= kRowsTogether * kRowsTogether;
  return {vocab_size, is_large ? kRowsTogether : 1, checkpoint::PartCut::kRagged};
}

// How ranks share the rows of a weight that is cut by columns except in exact mode.
CutPart output_part(int64_t out_features) {
  return {out_features, 1, checkpoint::PartCut::kRagged};
}

}  // namespace

WeightCut vocabulary_cut(int64_t vocab_size) { return rows_cut({vocabulary_part(vocab_size)}); }

void add_either(std::vector<checkpoint::WeightSpec>& to, std::vector<checkpoint::WeightSpec> specs,
                std::vector<checkpoint::WeightSpec> other) {
  HEDDLE_CHECK_EQ(specs.size(), other.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    HEDDLE_CHECK(specs[i].name == other[i].name && specs[i].shape == other[i].shape);
    std::ranges::move(other[i].alternatives, std::back_inserter(specs[i].alternatives));
    to.push_back(std::move(specs[i]));
  }
}

graph::Value linear(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                    std::optional<DType> dtype) {
  return product(g, x, name, std::nullopt, dtype.value_or(g.meta(x).dtype));
}

graph::Value linear_term(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                         int64_t out_features) {
  const checkpoint::Rank& rank = g.rank();
  if (rank.is_alone()) return linear(g, x, name);
  const DType dtype = g.meta(x).dtype;
  const std::string bias = std::string(name) + std::string(kBias);
  if (!rank.ranks.exact) {
    return rank.index == 0 ? linear(g, x, name) : g.linear(x, g.weight(name), {}, dtype);
  }
  const int64_t in_features = g.meta(x)[1].offset * rank.ranks.count;
  const CutPart part = output_part(out_features);
  const checkpoint::CutRange own = checkpoint::own_range(part, rank);
  const graph::Value own_bias =
      g.has_weight(bias) ? g.weight_rows(bias, own.first, own.count) : graph::Value{};
  const graph::Value all = g.gather_columns(x, {in_features});
  return g.gather_columns(g.linear(all, g.weight(name), own_bias, dtype), part);
}

graph::Value sum_over_ranks(graph::GraphBuilder& g, graph::Value term) {
  const checkpoint::Rank& rank = g.rank();
  return rank.is_alone() || rank.ranks.exact ? term : g.apply1("all_reduce", {term});
}

graph::Value summed_linear(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                           int64_t out_features) {
  return sum_over_ranks(g, linear_term(g, x, name, out_features));
}

graph::Value vocabulary_linear(graph::GraphBuilder& g, graph::Value rows, std::string_view name,
                               int64_t vocab_size, bool tied) {
  const checkpoint::Rank& rank = g.rank();
  if (rank.is_alone()) return linear(g, rows, name, DType::kF32);
  const CutPart part = vocabulary_part(vocab_size);
  const checkpoint::CutRange own = checkpoint::own_range(part, rank);
  const auto own_rows = tied ? std::optional(Rows{own.first, own.count}) : std::nullopt;
  return g.gather_columns(product(g, rows, name, own_rows, DType::kF32), part);
}

std::vector<int64_t> own_sizes(const std::vector<CutPart>& parts, const checkpoint::Rank& rank) {
  std::vector<int64_t> sizes;
  for (const CutPart& part : parts) sizes.push_back(checkpoint::own_range(part, rank).count);
  return sizes;
}

std::vector<graph::Value> linear_parts(graph::GraphBuilder& g, graph::Value x,
                                       std::string_view name,
                                       const std::vector<LinearPart>& parts) {
  const auto all_alike = [&](const LinearPart& part) { return part.dtype == parts[0].dtype; };
  std::vector<graph::Value> values;
  int64_t first_row = 0;
  for (size_t begin = 0; begin < parts.size();) {
    std::vector<int64_t> widths;
    int64_t num_rows = 0;
    for (size_t i = begin; i < parts.size() && parts[i].dtype == parts[begin].dtype; ++i) {
      widths.push_back(parts[i].width);
      num_rows += parts[i].width;
    }
    const DType dtype = parts[begin].dtype;
    const bool all = std::ranges::all_of(parts, all_alike);
    const graph::Value columns =
        product(g, x, name, all ? std::nullopt : std::optional(Rows{first_row, num_rows}), dtype);
    if (widths.size() == 1) {
      values.push_back(columns);
    } else {
      std::ranges::copy(g.split(columns, widths), std::back_inserter(values));
    }
    begin += widths.size();
    first_row += num_rows;
  }
  return values;
}

graph::Value head_products(graph::GraphBuilder& g, std::string_view op, graph::Value x,
                           std::string_view name, const ops::Attrs& attrs) {
  const std::string dense = std::string(name) + std::string(kDenseEnding);
  return g.apply1(op, {x, g.weight(g.has_weight(dense) ? dense : name)}, attrs);
}

graph::Value expert_products(graph::GraphBuilder& g, std::string_view op, graph::Value x,
                             graph::Value scores, const std::vector<graph::Value>& more,
                             const ops::Attrs& attrs) {
  std::vector<graph::Value> inputs{x, scores, g.weight("experts.w13"), g.weight("experts.w2")};
  inputs.insert(inputs.end(), more.begin(), more.end());
  const checkpoint::Rank& rank = g.rank();
  const int64_t num_experts = g.meta(scores)[1].offset;
  if (rank.is_alone() || num_experts % rank.ranks.count != 0) {
    return g.apply1(op, std::move(inputs), attrs);  // each rank has every expert
  }
  ops::Attrs own = attrs;
  own.set("first_expert", static_cast<double>(num_experts / rank.ranks.count * rank.index));
  if (!rank.ranks.exact) return g.apply1(op, std::move(inputs), own);
  own.set("terms", 1);
  const graph::Value terms = g.apply1("all_reduce_bits", {g.apply1(op, std::move(inputs), own)});
  const std::vector<int64_t> widths(static_cast<size_t>(attrs.integer("top_k")),
                                    g.meta(x)[1].offset);
  graph::Value sum;
  for (const graph::Value term : g.split(terms, widths)) {
    sum = sum.valid() ? g.add(sum, term) : term;
  }
  return sum;
}

void add_norm_weight(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                     const std::string& hub, int64_t width, float offset) {
  specs.push_back(
      {.name = ours,
       .shape = {width},
       .alternatives = {checkpoint::whole({hub, {width}})},
       .dtype = WeightDType::kF32,
       .offset = offset,
       .initial = offset == 0 ? checkpoint::Initial::kAroundOne : checkpoint::Initial::kSmall});
}

void add_norm_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                      const std::string& hub, int64_t width, const NormForm& form) {
  if (form.kind == NormKind::kUnitRms) return;
  add_norm_weight(specs, ours, hub + ".weight", width, form.offset);
  if (form.kind != NormKind::kLayerBias) return;
  specs.push_back({.name = ours + std::string(kBias),
                   .shape = {width},
                   .alternatives = {checkpoint::whole({hub + std::string(kBias), {width}})},
                   .dtype = WeightDType::kF32});
}

void derive_norm_weights(const std::string& ours, int64_t width, const NormForm& form,
                         DerivedWeights& derived) {
  if (form.kind == NormKind::kUnitRms) derived.emplace_back(ours, unit_norm(width));
}

graph::Value norm(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                  const NormForm& form) {
  const ops::Attrs attrs{{"epsilon", form.epsilon}};
  const std::string bias = std::string(name) + std::string(kBias);
  switch (form.kind) {
    case NormKind::kLayer:
      return g.apply1("layer_norm", {x, g.weight(name)}, attrs);
    case NormKind::kLayerBias:
      return g.apply1("layer_norm_bias", {x, g.weight(name), g.weight(bias)}, attrs);
    case NormKind::kRms:
    case NormKind::kUnitRms:
      break;
  }
  return g.rms_norm(x, name, form.epsilon);
}

Tensor unit_norm(int64_t width) {
  Tensor ones({width}, DType::kF32);
  std::ranges::fill(ones.span<float>(), 1.0f);
  return ones;
}

}  // namespace heddle::models
