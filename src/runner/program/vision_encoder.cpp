// SPDX-License-Identifier: Apache-2.0
#include "runner/program/vision_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "graph/builder.h"
#include "models/registry.h"

namespace heddle::runner {

namespace {

// Copies cells of patches, each of `width` values, into the order `cells`.
std::vector<float> in_order(std::span<const float> patches, const std::vector<int32_t>& cells,
                            int64_t width) {
  std::vector<float> ordered(patches.size());
  const auto row = static_cast<size_t>(width);
  for (size_t i = 0; i < cells.size(); ++i) {
    std::memcpy(ordered.data() + i * row, patches.data() + static_cast<size_t>(cells[i]) * row,
                row * sizeof(float));
  }
  return ordered;
}

}  // namespace

Result<std::unique_ptr<VisionEncoder>> VisionEncoder::create(
    const VisionOptions& options, std::shared_ptr<ComputeDevice> device) {
  if (!device->shares_memory_with_host()) {
    return unimplemented("vision towers are computed on the CPU only; choose --device cpu");
  }
  HEDDLE_ASSIGN_OR_RETURN(auto tower, models::load_vision_tower(options.model_dir));
  std::unique_ptr<VisionEncoder> encoder(new VisionEncoder(std::move(device), std::move(tower)));
  HEDDLE_RETURN_IF_ERROR(encoder->load(options));
  return encoder;
}

Status VisionEncoder::load(const VisionOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(auto source, open_weights(options.model_dir, /*dummy=*/false));
  HEDDLE_ASSIGN_OR_RETURN(constants_,
                          ModelConstants::load(
                              std::move(source), tower_->weight_specs(),
                              {.dtype = compute_->context().exact ? DType::kF32 : options.dtype,
                               .ignored_prefixes = models::VisionTower::ignored_prefixes(),
                               .num_threads = options.num_threads},
                              [this](const auto&) -> Result<models::DerivedWeights> {
                                return tower_->derive_weights();
                              },
                              *compute_));
  graph::GraphBuilder g(ops::builtin_ops(),
                        [this](std::string_view name) { return constants_.find(name); });
  g.output(tower_->build(g), "features");
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, g.finish());
  HEDDLE_ASSIGN_OR_RETURN(graph::Program program,
                          graph::compile(std::move(graph), ops::builtin_ops(), compute_->context(),
                                         {.largest = {.tokens = options.max_tokens}}));
  HEDDLE_ASSIGN_OR_RETURN(executor_,
                          graph::Executor::create(std::move(program), compute_->device()));
  return {};
}

Result<Tensor> VisionEncoder::encode(const models::PatchGrid& grid,
                                     std::span<const float> patches) {
  const models::VisionConfig& config = tower_->config();
  const int64_t most = program().largest.tokens;
  if (grid.height < 1 || grid.width < 1 || grid.height % config.merge != 0 ||
      grid.width % config.merge != 0) {
    return invalid_argument(
        fmt::format("a picture of {} x {} patches cannot be cut into cells of {} x {}; resize it "
                    "to whole cells",
                    grid.height, grid.width, config.merge, config.merge));
  }
  if (grid.height > most * config.cell() || grid.width > most * config.cell() / grid.height) {
    return invalid_argument(fmt::format(
        "a picture of {} x {} patches has more than {} tokens, the most that the encoder was made "
        "for; send a smaller one",
        grid.height, grid.width, most));
  }
  if (std::ssize(patches) != grid.patches() * config.patch_values()) {
    return invalid_argument(fmt::format("{} values of patches; {} x {} patches have {} each",
                                        patches.size(), grid.height, grid.width,
                                        config.patch_values()));
  }
  const models::TowerInputs inputs = tower_->lay_out(grid);
  std::vector<float> ordered;
  if (!inputs.cells.empty()) {
    ordered = in_order(patches, inputs.cells, config.cell() * config.patch_values());
    patches = ordered;
  }
  std::vector<TensorView> views{
      TensorView(patches.data(), DType::kF32, Shape{grid.patches(), config.patch_values()})};
  for (const Tensor& tensor : inputs.tensors) views.push_back(tensor.view());
  const ops::ForwardContext no_batch;
  HEDDLE_RETURN_IF_ERROR(executor_->run(compute_->context(), no_batch,
                                        {.tokens = grid.patches() / config.cell()}, views));
  const TensorView output = executor_->output(0);
  Tensor features(output.shape, DType::kF32);
  const auto width = static_cast<size_t>(output.shape[1]);
  for (int64_t t = 0; t < output.shape[0]; ++t) {  // rows of the output may be padded
    std::copy_n(output.row<float>(t), width, features.view().row<float>(t));
  }
  return features;
}

}  // namespace heddle::runner
