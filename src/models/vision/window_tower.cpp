// SPDX-License-Identifier: Apache-2.0
#include "models/vision/window_tower.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "models/layers/linear.h"

namespace heddle::models {

namespace {

using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

constexpr NormForm kRmsNorm{.kind = NormKind::kRms, .epsilon = 1e-6};

}  // namespace

void WindowTower::add_weights(std::vector<WeightSpec>& specs, const std::string& hub) const {
  const VisionConfig& config = this->config();
  const int64_t H = config.hidden_size, I = config.intermediate_size, joined = config.cell() * H;
  const auto add = [&](const std::string& ours, const std::vector<HubLinear>& parts, int64_t in) {
    add_linear_weights(specs, ours, parts, in, {}, /*bias=*/true);
  };
  for (int64_t i = 0; i < config.depth; ++i) {
    const std::string scope = fmt::format("blocks.{}.", i), mlp = hub + scope + "mlp.";
    for (const char* norm : {"norm1", "norm2"}) {
      add_norm_weights(specs, scope + norm, hub + scope + norm, H, kRmsNorm);
    }
    add_attention_weights(specs, scope, hub + scope);
    add(scope + "mlp.gate_up_proj", {{mlp + "gate_proj", I}, {mlp + "up_proj", I}}, H);
    add(scope + "mlp.down_proj", {{mlp + "down_proj", H}}, I);
  }
  add_norm_weights(specs, "merger.ln_q", hub + "merger.ln_q", H, kRmsNorm);
  add("merger.mlp.0", {{hub + "merger.mlp.0", joined}}, joined);
  add("merger.mlp.2", {{hub + "merger.mlp.2", config.out_size}}, joined);
}

Value WindowTower::build_blocks(graph::GraphBuilder& g, Value x, const PatchInputs& inputs) const {
  const VisionConfig& config = this->config();
  const Value windows = patch_input(g, "windows", DType::kI32, 2);
  const Value places =
      g.input("places", {DType::kI32, {ops::SymbolicDim::of(ops::Symbol::kTokens)}});
  for (int64_t i = 0; i < config.depth; ++i) {
    const GraphScope block(g, fmt::format("blocks.{}.", i));
    const bool whole = std::ranges::find(config.whole_blocks, i) != config.whole_blocks.end();
    const Value attended = attend(g, norm(g, x, "norm1", kRmsNorm), inputs.positions,
                                  whole ? inputs.segments : windows);
    x = g.add(x, linear(g, attended, "attn.proj"));
    const Value gate_up = linear(g, norm(g, x, "norm2", kRmsNorm), "mlp.gate_up_proj");
    x = g.add(x, linear(g, g.silu_mul(gate_up), "mlp.down_proj"));
  }
  const GraphScope scope(g, "merger.");
  const Value cells = g.apply1("join_rows", {norm(g, x, "ln_q", kRmsNorm)},
                               {{"count", static_cast<double>(config.cell())}});
  const Value features = linear(g, g.apply1("erf_gelu", {linear(g, cells, "mlp.0")}), "mlp.2");
  ops::Attrs attrs;
  if (g.activations() != DType::kF32) {
    attrs.set("output_dtype", static_cast<double>(static_cast<int>(g.activations())));
  }
  return g.apply1("embedding", {places, features}, attrs);
}

TowerInputs WindowTower::lay_out(const PatchGrid& grid) const {
  const int64_t window = config().window;
  const int64_t rows = grid.height / config().merge, columns = grid.width / config().merge;
  TowerInputs inputs;
  Tensor windows({grid.patches(), 2}, DType::kI32), places({rows * columns}, DType::kI32);
  for (int64_t top = 0; top < rows; top += window) {
    for (int64_t left = 0; left < columns; left += window) {
      const int64_t first = std::ssize(inputs.cells) * config().cell();
      for (int64_t y = top; y < std::min(top + window, rows); ++y) {
        for (int64_t x = left; x < std::min(left + window, columns); ++x) {
          const int64_t cell = y * columns + x;
          places.span<int32_t>()[static_cast<size_t>(cell)] =
              static_cast<int32_t>(inputs.cells.size());
          inputs.cells.push_back(static_cast<int32_t>(cell));
        }
      }
      const int64_t end = std::ssize(inputs.cells) * config().cell();
      for (int64_t row = first; row < end; ++row) {
        windows.view().row<int32_t>(row)[0] = static_cast<int32_t>(first);
        windows.view().row<int32_t>(row)[1] = static_cast<int32_t>(end);
      }
    }
  }
  inputs.tensors = patch_tensors(grid, inputs.cells);
  inputs.tensors.push_back(std::move(windows));
  inputs.tensors.push_back(std::move(places));
  return inputs;
}

}  // namespace heddle::models
