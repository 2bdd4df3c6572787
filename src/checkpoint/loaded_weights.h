// SPDX-License-Identifier: Apache-2.0
// LoadedWeights: a model's weights by our names, and the memory that holds them. Views stay valid
// until it is destroyed, even if it is moved.
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
  // The weight's view. Aborts if no spec has this name, which means a typing error in a model.
  [[nodiscard]] const TensorView& operator[](std::string_view name) const;

  // The weight's view in host memory; if the weights are on a device, a copy. Aborts, on every
  // device, for weights without WeightSpec::on_host.
  [[nodiscard]] const TensorView& host(std::string_view name) const;

  // The weight's view; null if no spec has this name.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  // Checks whether replace() accepts `other`: both must come from the same specs. Error:
  // kInvalidArgument, naming the first weight, by name, whose dtype or packing differs.
  [[nodiscard]] Status check_alike(const LoadedWeights& other) const;

  // Overwrites these weights with the numbers of `other`, which check_alike() must have accepted:
  // views keep their addresses and show the new numbers. Neither object may use mapped files in
  // place (checked). For weights on a device, `stream` is a stream of that device and `other` is on
  // a device too, except for a device whose memory is the host's; otherwise it is null. Waits for
  // the copies. Error: kDeviceLost; the weights are then a mixture of old and new ones.
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

  // The block of memory that contains all dense weights.
  [[nodiscard]] const std::byte* memory() const {
    return device_arena_.size() > 0 ? device_arena_.data() : arena_.data();
  }

  std::unordered_map<std::string, TensorView, Hash, std::equal_to<>> weights_;
  // the weights that kPacked views refer to
  std::vector<std::unique_ptr<quant::PackedWeight>> packed_;
  device::HostBuffer arena_;  // all weights that are not used in place in the mapped files; with a
                              // device, the copies for the host
  device::Buffer device_arena_;
  std::unordered_map<std::string, TensorView, Hash, std::equal_to<>> on_host_;
  std::unique_ptr<const WeightSource> source_;  // kept while a view points into it
  DType run_dtype_ = DType::kBf16;
  int64_t num_parameters_ = 0;
  int64_t bytes_in_place_ = 0;
};

}  // namespace heddle::checkpoint
