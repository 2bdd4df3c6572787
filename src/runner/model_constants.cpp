// SPDX-License-Identifier: Apache-2.0
#include "runner/model_constants.h"

#include <utility>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/dummy_weights.h"

namespace heddle::runner {

namespace {

constexpr uint64_t kDummySeed = 0;

}  // namespace

Result<std::unique_ptr<const checkpoint::WeightSource>> open_weights(
    const std::filesystem::path& folder, bool dummy) {
  if (dummy) {
    return std::unique_ptr<const checkpoint::WeightSource>(
        std::make_unique<checkpoint::DummyWeights>(kDummySeed));
  }
  HEDDLE_ASSIGN_OR_RETURN(auto files, checkpoint::CheckpointFiles::open(folder));
  return std::unique_ptr<const checkpoint::WeightSource>(
      std::make_unique<checkpoint::CheckpointFiles>(std::move(files)));
}

Result<ModelConstants> ModelConstants::load(std::unique_ptr<const checkpoint::WeightSource> source,
                                            std::span<const checkpoint::WeightSpec> specs,
                                            checkpoint::LoadOptions options, const Derive& derive,
                                            const ComputeDevice& compute) {
  ModelConstants constants;
  options.device = compute.shares_memory_with_host() ? nullptr : &compute.device();
  HEDDLE_ASSIGN_OR_RETURN(constants.weights_,
                          checkpoint::load_weights(std::move(source), specs, options));
  HEDDLE_ASSIGN_OR_RETURN(constants.derived_, derive(constants.weights_));
  HEDDLE_RETURN_IF_ERROR(constants.place(compute));
  return constants;
}

Status ModelConstants::place(const ComputeDevice& compute) {
  for (const auto& [name, tensor] : derived_) {
    TensorView view = tensor.view();
    if (!compute.shares_memory_with_host()) {
      HEDDLE_ASSIGN_OR_RETURN(device::Buffer buffer, compute.device().allocate(view.num_bytes()));
      HEDDLE_RETURN_IF_ERROR(compute.stream().copy(buffer.data(), view.data, view.num_bytes()));
      view.data = buffer.data();
      memory_.push_back(std::move(buffer));
    }
    views_.emplace(name, view);
  }
  return compute.stream().synchronize();
}

const TensorView* ModelConstants::find(std::string_view name) const {
  if (const TensorView* weight = weights_.find(name)) return weight;
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : &found->second;
}

}  // namespace heddle::runner
