// SPDX-License-Identifier: Apache-2.0
#include "runner/program/model_constants.h"

#include <utility>

#include "checkpoint/dummy_weights.h"
#include "core/check.h"
#include "device/cpu_device.h"
#include "models/registry.h"

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
  return models::open_weights(folder);
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

// The host stands in for a device with memory of its own; both use the same layout.
Result<ModelConstants> ModelConstants::load_beside(
    std::unique_ptr<const checkpoint::WeightSource> source,
    std::span<const checkpoint::WeightSpec> specs, checkpoint::LoadOptions options,
    const Derive& derive, const ComputeDevice& compute) {
  ModelConstants constants;
  if (!compute.shares_memory_with_host()) {
    constants.host_ = std::make_unique<device::CpuDevice>(/*num_threads=*/1);
  }
  options.device = constants.host_.get();
  HEDDLE_ASSIGN_OR_RETURN(constants.weights_,
                          checkpoint::load_weights(std::move(source), specs, options));
  HEDDLE_ASSIGN_OR_RETURN(constants.derived_, derive(constants.weights_));
  return constants;
}

Status ModelConstants::replace(const ModelConstants& other, const ComputeDevice& compute) {
  device::Stream& stream = compute.stream();
  HEDDLE_RETURN_IF_ERROR(
      weights_.replace(other.weights_, compute.shares_memory_with_host() ? nullptr : &stream));
  HEDDLE_CHECK_EQ(derived_.size(), other.derived_.size());
  for (size_t i = 0; i < derived_.size(); ++i) {
    auto& [name, tensor] = derived_[i];
    const TensorView from = other.derived_[i].second.view();
    HEDDLE_CHECK(other.derived_[i].first == name && tensor.dtype() == from.dtype &&
                 tensor.shape() == from.shape);
    void* const to = memory_.empty() ? tensor.view().data : memory_[i].data();
    HEDDLE_RETURN_IF_ERROR(stream.copy(to, from.data, from.num_bytes()));
  }
  return stream.synchronize();
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
