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
#include "runner/compute_device.h"

namespace heddle::runner {

// The files of a model's folder, or seeded random weights in place of any.
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

  // Null: there is none of this name.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  [[nodiscard]] const checkpoint::LoadedWeights& weights() const { return weights_; }

 private:
  Status place(const ComputeDevice& compute);

  checkpoint::LoadedWeights weights_;
  models::DerivedWeights derived_;
  std::vector<device::Buffer> memory_;  // of the device, where it does not read the host's
  std::map<std::string, TensorView, std::less<>> views_;  // of derived_
};

}  // namespace heddle::runner
