// SPDX-License-Identifier: Apache-2.0
#include "models/vision/vision_tower.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "models/layers/linear.h"
#include "models/vision/table_tower.h"
#include "models/vision/window_tower.h"

namespace heddle::models {

namespace {

using checkpoint::WeightSpec;
using graph::Value;

constexpr const char* kPatchProduct = "patch_embed.proj";
constexpr const char* kFrequencies = "inverse_frequencies";
constexpr const char* kAxes = "axes";

// The patch embedding is stored as a convolution. Its stride is as large as its kernel, so that it
// is a product of flattened patches and a matrix.
void add_patch_weights(std::vector<WeightSpec>& specs, const std::string& hub,
                       const VisionConfig& config, bool bias) {
  const int64_t N = config.hidden_size, K = config.patch_values();
  add_linear_weights(specs, kPatchProduct, {{hub + kPatchProduct, N}}, K, {}, bias);
  WeightSpec& product = specs[specs.size() - (bias ? 2 : 1)];
  product.alternatives = {{{.tensor = {hub + kPatchProduct + ".weight",
                                       {N, 3, config.frames, config.patch, config.patch}},
                            .runs = {{.num_rows = N * K}},
                            .form = checkpoint::RowForm::kElement}}};
}

}  // namespace

std::vector<WeightSpec> VisionTower::weight_specs() const {
  const auto below = [&](const std::string& hub) {
    std::vector<WeightSpec> specs;
    add_patch_weights(specs, hub, config_, has_patch_bias());
    add_weights(specs, hub);
    return specs;
  };
  std::vector<WeightSpec> specs;
  add_either(specs, below("model.visual."), below("visual."));
  return specs;
}

std::vector<std::string> VisionTower::ignored_prefixes() {
  return {"model.language_model.", "language_model.", "model.layers.", "model.embed_tokens.",
          "model.norm.",           "lm_head.",        "mtp."};
}

DerivedWeights VisionTower::derive_weights() const {
  // The first half of a head's pairs is rotated by the row of a patch, the second half by its
  // column, both with the same frequencies.
  const int64_t pairs = config_.head_dim() / 2, half = pairs / 2;
  Tensor frequencies({pairs}, DType::kF32), axes({pairs}, DType::kI32);
  for (int64_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i % half) / static_cast<double>(pairs);
    frequencies.span<float>()[static_cast<size_t>(i)] =
        static_cast<float>(std::pow(config_.rope_theta, exponent));
    axes.span<int32_t>()[static_cast<size_t>(i)] = i < half ? 0 : 1;
  }
  DerivedWeights derived;
  derived.emplace_back(kFrequencies, std::move(frequencies));
  derived.emplace_back(kAxes, std::move(axes));
  return derived;
}

Value VisionTower::build(graph::GraphBuilder& g) const {
  const Value patches = patch_input(g, "patches", g.activations(), config_.patch_values());
  const PatchInputs inputs{.positions = patch_input(g, "positions", DType::kI32, 2),
                           .segments = patch_input(g, "segments", DType::kI32, 2)};
  return build_blocks(g, linear(g, patches, kPatchProduct), inputs);
}

Value VisionTower::patch_input(graph::GraphBuilder& g, const char* name, DType dtype,
                               int64_t width) const {
  return g.input(name, {dtype,
                        {{.scale = config_.cell(), .symbol = ops::Symbol::kTokens},
                         ops::SymbolicDim::fixed(width)}});
}

std::vector<Tensor> VisionTower::patch_tensors(const PatchGrid& grid,
                                               const std::vector<int32_t>& cells) const {
  const int64_t merge = config_.merge, columns = grid.width / merge;
  HEDDLE_CHECK(grid.height % merge == 0 && grid.width % merge == 0);
  Tensor positions({grid.patches(), 2}, DType::kI32), segments({grid.patches(), 2}, DType::kI32);
  for (int64_t row = 0; row < grid.patches(); ++row) {
    const int64_t place = row / config_.cell(), within = row % config_.cell();
    const int64_t cell = cells.empty() ? place : cells[static_cast<size_t>(place)];
    auto* const position = positions.view().row<int32_t>(row);
    position[0] = static_cast<int32_t>(cell / columns * merge + within / merge);
    position[1] = static_cast<int32_t>(cell % columns * merge + within % merge);
    segments.view().row<int32_t>(row)[1] = static_cast<int32_t>(grid.patches());
  }
  std::vector<Tensor> tensors;
  tensors.push_back(std::move(positions));
  tensors.push_back(std::move(segments));
  return tensors;
}

Value VisionTower::attend(graph::GraphBuilder& g, Value x, Value positions, Value segments) const {
  const int64_t width = config_.hidden_size;
  const auto D = static_cast<double>(config_.head_dim());
  const std::vector<Value> qkv = g.split(linear(g, x, "attn.qkv"), {width, width, width});
  if (qkv.size() != 3) return {};
  const auto shared = [&](const char* name) {
    const graph::GraphRootScope root(g, "");
    return g.weight(name);
  };
  const Value frequencies = shared(kFrequencies), axes = shared(kAxes);
  const auto rotated = [&](Value heads) {
    return g.apply1("rope_axes", {heads, positions, frequencies, axes},
                    {{"head_dim", D}, {"factor", 1.0}});
  };
  return g.apply1("segment_attention", {rotated(qkv[0]), rotated(qkv[1]), qkv[2], segments},
                  {{"head_dim", D}, {"scale", 1 / std::sqrt(D)}});
}

void VisionTower::add_attention_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                                        const std::string& hub) const {
  const int64_t H = config_.hidden_size;
  add_linear_weights(specs, ours + "attn.qkv", {{hub + "attn.qkv", 3 * H}}, H, {}, /*bias=*/true);
  add_linear_weights(specs, ours + "attn.proj", {{hub + "attn.proj", H}}, H, {}, /*bias=*/true);
}

std::unique_ptr<const VisionTower> make_vision_tower(const VisionConfig& config) {
  if (config.form == TowerForm::kWindows) return std::make_unique<WindowTower>(config);
  return std::make_unique<TableTower>(config);
}

}  // namespace heddle::models
