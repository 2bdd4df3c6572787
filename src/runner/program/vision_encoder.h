// SPDX-License-Identifier: Apache-2.0
// VisionEncoder: a checkpoint's vision tower, loaded and compiled: patches of a picture in,
// features out. Each picture is computed alone, so its features depend on nothing but its patches.
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
  bool dummy_weights = false;
  std::optional<DType> dtype;  // of the tower; none: as stored
  bool exact = false;          // implies fp32
  int num_threads = 0;         // of loading
  int64_t max_tokens = 1024;   // of a picture
};

class VisionEncoder {
 public:
  // Reads config.json and the tower's weights, and compiles it for the device, whose context is
  // exact as the options are. Error: those of models::load_vision_tower() and of loading;
  // kUnimplemented where the device is not the CPU.
  static Result<std::unique_ptr<VisionEncoder>> create(const VisionOptions& options,
                                                       std::shared_ptr<ComputeDevice> device);

  // `patches`: those of the grid, cell by cell, config().patch_values() each
  // (media::Patches::values). Returns the features [tokens, config().feature_width()] f32. Error:
  // kInvalidArgument for a grid that cells do not fill, for more tokens than max_tokens, and for
  // another number of values than the grid has.
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
