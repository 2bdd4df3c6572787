// SPDX-License-Identifier: Apache-2.0
// ModelConstants: the named constants of a graph in device memory: the weights of a model, and the
// constants derived from them.
//
// Threading: thread-compatible after loading.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "runner/program/compute_device.h"

namespace heddle::runner {

// Opens the weight files of a model's folder, or a source of seeded random weights instead.
Result<std::unique_ptr<const checkpoint::WeightSource>> open_weights(
    const std::filesystem::path& folder, bool dummy);

class ModelConstants {
 public:
  using Derive = std::function<Result<models::DerivedWeights>(const checkpoint::LoadedWeights&)>;

  // `options` need not name the device. Errors: those of checkpoint::load_weights() and of
  // `derive`.
  static Result<ModelConstants> load(std::unique_ptr<const checkpoint::WeightSource> source,
                                     std::span<const checkpoint::WeightSpec> specs,
                                     checkpoint::LoadOptions options, const Derive& derive,
                                     const ComputeDevice& compute);

  // Loads constants to host memory while other constants are in use, to replace those with
  // replace().
  static Result<ModelConstants> load_beside(std::unique_ptr<const checkpoint::WeightSource> source,
                                            std::span<const checkpoint::WeightSpec> specs,
                                            checkpoint::LoadOptions options, const Derive& derive,
                                            const ComputeDevice& compute);

  // Whether replace() can replace these constants by `other`, loaded with the same specs and the
  // same `derive`. Error: as LoadedWeights::check_alike().
  [[nodiscard]] Status check_alike(const ModelConstants& other) const {
    return weights_.check_alike(other.weights_);
  }

  // Overwrites these constants with `other`, which load_beside() made and check_alike() accepted;
  // addresses stay the same. Waits for the copies. `compute` is that of load(). Error: kDeviceLost;
  // the constants are then a mixture of both.
  Status replace(const ModelConstants& other, const ComputeDevice& compute);

  // The constant with this name; null: there is none.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  [[nodiscard]] const checkpoint::LoadedWeights& weights() const { return weights_; }

 private:
  Status place(const ComputeDevice& compute);

  std::unique_ptr<device::Device> host_;  // stands in for a device in load_beside(); outlives the
                                          // members below
  checkpoint::LoadedWeights weights_;
  models::DerivedWeights derived_;
  std::vector<device::Buffer> memory_;  // device memory; empty if the device reads host memory
  std::map<std::string, TensorView, std::less<>> views_;  // views of derived_, by name
};

}  // namespace heddle::runner
