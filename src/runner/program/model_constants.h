// SPDX-License-Identifier: Apache-2.0
// ModelConstants: what a graph knows by name: the weights of a model, and the constants that follow
// from them, in memory of its device.
//
// Threading: thread-compatible once it is made.
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

// The files of a model's folder, or seeded random weights instead.
Result<std::unique_ptr<const checkpoint::WeightSource>> open_weights(
    const std::filesystem::path& folder, bool dummy);

class ModelConstants {
 public:
  using Derive = std::function<Result<models::DerivedWeights>(const checkpoint::LoadedWeights&)>;

  // `options` but for the device. Errors: those of checkpoint::load_weights() and of `derive`.
  static Result<ModelConstants> load(std::unique_ptr<const checkpoint::WeightSource> source,
                                     std::span<const checkpoint::WeightSpec> specs,
                                     checkpoint::LoadOptions options, const Derive& derive,
                                     const ComputeDevice& compute);

  // Loads to the host while other constants are in use, for their replace().
  static Result<ModelConstants> load_beside(std::unique_ptr<const checkpoint::WeightSource> source,
                                            std::span<const checkpoint::WeightSpec> specs,
                                            checkpoint::LoadOptions options, const Derive& derive,
                                            const ComputeDevice& compute);

  // Whether replace() can put `other` in the place of these, which were loaded with the same specs
  // and the same `derive`. Error: as LoadedWeights::check_alike().
  [[nodiscard]] Status check_alike(const ModelConstants& other) const {
    return weights_.check_alike(other.weights_);
  }

  // Copies what load_beside() gave, and check_alike() found alike, over these; addresses stay.
  // Waits for the copies. `compute` is that of load(). Error: kDeviceLost; they are then of both.
  Status replace(const ModelConstants& other, const ComputeDevice& compute);

  // Null: there is none of this name.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  [[nodiscard]] const checkpoint::LoadedWeights& weights() const { return weights_; }

 private:
  Status place(const ComputeDevice& compute);

  std::unique_ptr<device::Device> host_;  // for load_beside(), instead of a device; outlives the
                                          // members below
  checkpoint::LoadedWeights weights_;
  models::DerivedWeights derived_;
  std::vector<device::Buffer> memory_;  // device memory, unless the device reads the host's
  std::map<std::string, TensorView, std::less<>> views_;  // views of derived_
};

}  // namespace heddle::runner
