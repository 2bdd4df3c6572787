// SPDX-License-Identifier: Apache-2.0
#include "models/layers/rope_table.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace heddle::models {

namespace {

std::string name_of(size_t index) {
  constexpr const char* kFirst = "inverse_frequencies";
  return index == 0 ? kFirst : fmt::format("{}.{}", kFirst, index);
}

}  // namespace

std::vector<RopeTable> rope_tables_of(const checkpoint::ModelConfig& config) {
  std::vector<RopeTable> tables{{config.rope, config.head_dim}};
  if (config.sliding_rope) tables.push_back({*config.sliding_rope, config.head_dim});
  return tables;
}

double rope_factor(const RopeTable& table) {
  return checkpoint::inverse_frequencies(table.rope, table.head_dim).attention_factor;
}

void derive_rope_tables(std::span<const RopeTable> tables, const std::string& scope,
                        DerivedWeights& derived) {
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto rope = checkpoint::inverse_frequencies(tables[i].rope, tables[i].head_dim);
    const auto pairs = static_cast<int64_t>(rope.inverse.size());
    Tensor frequencies(rope.inverse_of_long.empty() ? Shape{pairs} : Shape{2, pairs}, DType::kF32);
    const auto turned = [&](float f) { return tables[i].reversed ? -f : f; };
    const auto after =
        std::ranges::transform(rope.inverse, frequencies.span<float>().begin(), turned).out;
    std::ranges::transform(rope.inverse_of_long, after, turned);
    derived.emplace_back(scope + name_of(i), std::move(frequencies));
  }
}

void derive_rope_axes(const checkpoint::ModelConfig& config, DerivedWeights& derived) {
  const int64_t pairs = checkpoint::rotary_width(config.rope, config.head_dim) / 2;
  const auto axes = checkpoint::rope_axes(config.rope, pairs);
  if (!axes.ok()) return;
  Tensor tensor({pairs}, DType::kI32);
  std::ranges::copy(*axes, tensor.span<int32_t>().begin());
  derived.emplace_back("axes", std::move(tensor));
}

std::vector<graph::Value> rope_tables(graph::GraphBuilder& g, size_t count) {
  std::vector<graph::Value> tables;
  for (size_t i = 0; i < count; ++i) tables.push_back(g.weight(name_of(i)));
  return tables;
}

graph::Value query_scale(graph::GraphBuilder& g, const checkpoint::RopeConfig& rope,
                         graph::Value positions) {
  if (rope.query_scale_beta == 0) return {};
  return g.apply1("position_scale", {positions},
                  {{"beta", rope.query_scale_beta},
                   {"length", static_cast<double>(rope.original_max_position_embeddings)}});
}

}  // namespace heddle::models
