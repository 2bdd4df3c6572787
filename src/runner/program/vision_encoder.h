// SPDX-License-Identifier: Apache-2.0
// VisionEncoder: the loaded and compiled vision tower of a checkpoint. It computes the features of
// one picture at a time from its patches, so that they depend only on these patches.
//
// Threading: confined to one thread at a time. Cost: encode() allocates its inputs and its result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "graph/program.h"
#include "models/vision/vision_tower.h"
#include "runner/program/compute_device.h"
#include "runner/program/model_constants.h"

namespace heddle::runner {

struct VisionOptions {
  std::filesystem::path model_dir;
  std::optional<DType> dtype;  // dtype of the tower; none: as stored. Exact mode: fp32
  int num_threads = 0;         // threads that load the weights
  int64_t max_tokens = 1024;   // most tokens of a picture
};

class VisionEncoder {
 public:
  // Reads config.json and the tower's weights, and compiles the tower for the device, in exact mode
  // if the device's context is exact. Errors: those of models::load_vision_tower() and of loading;
  // kUnimplemented if the device is not the CPU.
  static Result<std::unique_ptr<VisionEncoder>> create(const VisionOptions& options,
                                                       std::shared_ptr<ComputeDevice> device);

  // `patches` has config().patch_values() values for each patch of the grid, cell by cell
  // (media::Patches::values). Returns the features [tokens, config().feature_width()] f32. Error:
  // kInvalidArgument if the sides of the grid are not multiples of config().merge, if the picture
  // has more than max_tokens tokens, or if the number of values does not match the grid.
  Result<Tensor> encode(const models::PatchGrid& grid, std::span<const float> patches);

  [[nodiscard]] const models::VisionConfig& config() const { return tower_->config(); }

  [[nodiscard]] const graph::Program& program() const { return executor_->program(); }

 private:
  VisionEncoder(std::shared_ptr<ComputeDevice> device,
                std::unique_ptr<const models::VisionTower> tower)
      : compute_(std::move(device)), tower_(std::move(tower)) {}

  Status load(const VisionOptions& options);

  std::shared_ptr<ComputeDevice> compute_;
  std::unique_ptr<const models::VisionTower> tower_;
  ModelConstants constants_;
  std::optional<graph::Executor> executor_;
};

}  // namespace heddle::runner
