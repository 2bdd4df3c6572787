// SPDX-License-Identifier: Apache-2.0
// LoadedWeights: a model's weights by our names, and the memory they lie in. Views stay valid until
// it is destroyed, also when it is moved.
//
// Threading: thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/weight_source.h"
#include "core/tensor.h"
#include "device/device.h"
#include "device/host_buffer.h"
#include "quant/packed_rows.h"

namespace heddle::checkpoint {

class LoadedWeights {
 public:
  // Aborts when the specs had no such weight: that is a typing error in a model.
  [[nodiscard]] const TensorView& operator[](std::string_view name) const;

  // The same, where the host reads it: where the weights lie on a device, a copy. Aborts, on every
  // device, for weights without WeightSpec::on_host.
  [[nodiscard]] const TensorView& host(std::string_view name) const;

  // Null when the specs had no such weight.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  // Whether replace() can put `other` in the place of these: both come from the same specs.
  // Error: kInvalidArgument, naming the first weight, in order of name, whose dtype or packing
  // differs.
  [[nodiscard]] Status check_alike(const LoadedWeights& other) const;

  // Copies the numbers of `other`, which check_alike() found alike, over these: views keep their
  // addresses and show the new numbers. Nothing of either is used in place (checked). With a
  // device, `stream` is one of its own and `other` was loaded likewise, but for a device whose
  // memory is the host's; otherwise it is null. Waits for the copies. Error: kDeviceLost; the
  // weights are then of both.
  Status replace(const LoadedWeights& other, device::Stream* stream);

  [[nodiscard]] size_t size() const { return weights_.size(); }

  // The dtype that WeightDType::kRun stood for: LoadOptions::dtype or, as stored, the dtype of the
  // first such weight that is not quantised; bf16 if all are, or if a table is whose rows are
  // looked up.
  [[nodiscard]] DType run_dtype() const { return run_dtype_; }

  [[nodiscard]] int64_t num_parameters() const { return num_parameters_; }

  [[nodiscard]] int64_t bytes_in_place() const { return bytes_in_place_; }

  [[nodiscard]] int64_t bytes_copied() const { return arena_.size() + device_arena_.size(); }

 private:
  friend class WeightLoader;

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  // Where all weights lie that are dense.
  [[nodiscard]] const std::byte* memory() const {
    return device_arena_.size() > 0 ? device_arena_.data() : arena_.data();
  }

  std::unordered_map<std::string, TensorView, Hash, std::equal_to<>> weights_;
  std::vector<std::unique_ptr<quant::PackedWeight>> packed_;  // data of kPacked views
  device::HostBuffer arena_;  // all weights that are not used where they lie in the files; with a
                              // device the copies for the host
  device::Buffer device_arena_;
  std::unordered_map<std::string, TensorView, Hash, std::equal_to<>> on_host_;
  std::unique_ptr<const WeightSource> source_;  // kept while a view points into it
  DType run_dtype_ = DType::kBf16;
  int64_t num_parameters_ = 0;
  int64_t bytes_in_place_ = 0;
};

}  // namespace heddle::checkpoint
