// SPDX-License-Identifier: Apache-2.0
#include "models/vision/table_tower.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "models/layers/linear.h"

namespace heddle::models {

namespace {

using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

constexpr int64_t kTaps = 4;
constexpr const char* kTable = "pos_embed";
constexpr NormForm kNorm{.kind = NormKind::kLayerBias, .epsilon = 1e-6};

std::string deep_merger(size_t index) { return fmt::format("deepstack_merger_list.{}.", index); }

// The two table indices next to a patch along one axis, and the weight of the second one. The first
// and the last patch of the picture are at the edges of the table.
struct TableTap {
  int32_t first = 0;
  int32_t second = 0;
  float share = 0;
};

TableTap table_tap(int32_t place, int64_t count, int64_t side) {
  const float at = static_cast<float>(place) * static_cast<float>(side - 1) /
                   static_cast<float>(std::max<int64_t>(count - 1, 1));
  const auto first = static_cast<int32_t>(at);
  const auto last = static_cast<int32_t>(side - 1);
  return {first, std::min(first + 1, last), at - static_cast<float>(first)};
}

}  // namespace

void TableTower::add_weights(std::vector<WeightSpec>& specs, const std::string& hub) const {
  const VisionConfig& config = this->config();
  const int64_t H = config.hidden_size, joined = config.cell() * H;
  const auto add_two = [&](const std::string& scope, int64_t in, int64_t inner, int64_t out) {
    for (const auto& [name, from, to] :
         {std::tuple("linear_fc1", in, inner), std::tuple("linear_fc2", inner, out)}) {
      add_linear_weights(specs, scope + name, {{hub + scope + name, to}}, from, {}, /*bias=*/true);
    }
  };
  const Shape table{config.table_side * config.table_side, H};
  specs.push_back(
      {.name = kTable,
       .shape = table,
       .alternatives = {checkpoint::whole({hub + kTable + std::string(".weight"), table})},
       .packing = checkpoint::Packing::kLookedUp});
  for (int64_t i = 0; i < config.depth; ++i) {
    const std::string scope = fmt::format("blocks.{}.", i);
    for (const char* norm : {"norm1", "norm2"}) {
      add_norm_weights(specs, scope + norm, hub + scope + norm, H, kNorm);
    }
    add_attention_weights(specs, scope, hub + scope);
    add_two(scope + "mlp.", H, config.intermediate_size, H);
  }
  const auto add_merger = [&](const std::string& scope, int64_t norm_width) {
    add_norm_weights(specs, scope + "norm", hub + scope + "norm", norm_width, kNorm);
    add_two(scope, joined, joined, config.out_size);
  };
  add_merger("merger.", H);
  for (size_t j = 0; j < config.deep_blocks.size(); ++j) add_merger(deep_merger(j), joined);
}

Value TableTower::merged(graph::GraphBuilder& g, Value x, bool joins_first) const {
  const ops::Attrs attrs{{"count", static_cast<double>(config().cell())}};
  x = joins_first ? norm(g, g.apply1("join_rows", {x}, attrs), "norm", kNorm)
                  : g.apply1("join_rows", {norm(g, x, "norm", kNorm)}, attrs);
  return linear(g, g.apply1("erf_gelu", {linear(g, x, "linear_fc1")}), "linear_fc2");
}

Value TableTower::build_blocks(graph::GraphBuilder& g, Value x, const PatchInputs& inputs) const {
  const VisionConfig& config = this->config();
  const Value rows = patch_input(g, "table_rows", DType::kI32, kTaps);
  const Value weights = patch_input(g, "table_weights", DType::kF32, kTaps);
  ops::Attrs attrs;
  if (g.activations() != DType::kF32) {
    attrs.set("output_dtype", static_cast<double>(static_cast<int>(g.activations())));
  }
  x = g.add(x, g.apply1("weighted_rows", {g.weight(kTable), rows, weights}, attrs));
  std::vector<Value> deep;
  for (int64_t i = 0; i < config.depth; ++i) {
    {
      const GraphScope block(g, fmt::format("blocks.{}.", i));
      const Value attended =
          attend(g, norm(g, x, "norm1", kNorm), inputs.positions, inputs.segments);
      x = g.add(x, linear(g, attended, "attn.proj"));
      const Value inner = linear(g, norm(g, x, "norm2", kNorm), "mlp.linear_fc1");
      x = g.add(x, linear(g, g.apply1("gelu", {inner}), "mlp.linear_fc2"));
    }
    if (deep.size() == config.deep_blocks.size() || config.deep_blocks[deep.size()] != i) continue;
    const GraphScope scope(g, deep_merger(deep.size()));
    deep.push_back(merged(g, x, /*joins_first=*/true));
  }
  const GraphScope scope(g, "merger.");
  Value features = merged(g, x, /*joins_first=*/false);
  for (const Value feature : deep) features = g.concat(features, feature);
  return features;
}

TowerInputs TableTower::lay_out(const PatchGrid& grid) const {
  TowerInputs inputs{.cells = {}, .tensors = patch_tensors(grid, {})};
  Tensor rows({grid.patches(), kTaps}, DType::kI32), weights({grid.patches(), kTaps}, DType::kF32);
  const int64_t side = config().table_side;
  for (int64_t i = 0; i < grid.patches(); ++i) {
    const auto* const position = std::as_const(inputs.tensors[0]).view().row<int32_t>(i);
    const TableTap y = table_tap(position[0], grid.height, side);
    const TableTap x = table_tap(position[1], grid.width, side);
    const auto row_at = [&](int32_t down, int32_t right) {
      return down * static_cast<int32_t>(side) + right;
    };
    auto* const row = rows.view().row<int32_t>(i);
    auto* const weight = weights.view().row<float>(i);
    row[0] = row_at(y.first, x.first);
    row[1] = row_at(y.first, x.second);
    row[2] = row_at(y.second, x.first);
    row[3] = row_at(y.second, x.second);
    weight[0] = (1 - y.share) * (1 - x.share);
    weight[1] = (1 - y.share) * x.share;
    weight[2] = y.share * (1 - x.share);
    weight[3] = y.share * x.share;
  }
  inputs.tensors.push_back(std::move(rows));
  inputs.tensors.push_back(std::move(weights));
  return inputs;
}

}  // namespace heddle::models
