// SPDX-License-Identifier: Apache-2.0
// KernelCheckSide: one of the two devices that a case of kernel_check.cpp runs on, the one under
// test or the CPU. A case asks its side for tensors and runs ops on them; both sides hand out the
// same numbers in the same order, and their results are compared on the host.
//
// A round has a dtype. The device under test holds activations and weights in it, the CPU in fp32;
// the numbers are the same, because bf16 holds them without rounding.
//
// Every tensor has memory of its own, so that compute-sanitizer sees what an op reads or writes
// beside it.
//
// Threading: confined. Errors of memory and of copies are kept for results().
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "ops/context.h"
#include "ops/device_batch.h"
#include "ops/forward_context.h"
#include "ops/pool_lists.h"
#include "quant/packed_rows.h"
#include "quant/round_to_nearest.h"

namespace heddle::ops {

// A step of one sequence, whose pages are 1, 2, ... and whose states begin at slot 1.
struct CheckStep {
  static constexpr int32_t kTreeNodes = 3;

  int32_t rows = 5;
  int32_t context = 0;
  int32_t snapshot_tokens = 0;  // the state after so many rows goes to snapshot slot 1; 0: none
  bool has_tree = false;        // the last kTreeNodes rows: a node, and two that follow it
};

class KernelCheckSide {
 public:
  static constexpr int32_t kPageSize = 16;

  KernelCheckSide(device::Device& device, device::Stream& stream, Context& context);

  [[nodiscard]] Context& context() const { return context_; }

  [[nodiscard]] bool on_cpu() const { return context_.device == DeviceKind::kCpu; }

  // The dtype of activations and of weights.
  [[nodiscard]] DType dtype() const { return on_cpu() ? DType::kF32 : round_; }

  // Forgets the case before, with its memory.
  void begin(DType round);

  // Numbers within [-1, 1], of dtype().
  MutableTensorView random(const Shape& shape);
  // Numbers within [-1, 1], rounded to a scheme; of kInt4 in groups of 32. [N, K] or [E, N, K].
  TensorView packed(const Shape& shape, quant::Scheme scheme);
  // Numbers within [low, high] that are fp32 in every run: weights of norms, gates, states, logits.
  MutableTensorView floats(const Shape& shape, float low = -1, float high = 1);
  MutableTensorView integers(const std::vector<int32_t>& values);

  // Zeros.
  MutableTensorView room(const Shape& shape, DType dtype);

  MutableTensorView room(const Shape& shape) { return room(shape, dtype()); }

  std::span<std::byte> workspace(int64_t num_bytes);

  // A result of the case: an output, or a tensor that an op changes in place.
  MutableTensorView output(const Shape& shape) { return changed(room(shape)); }

  MutableTensorView changed(const MutableTensorView& view);

  // A copy of `values`, which must outlive the launches that take it.
  template <typename Element>
  MirroredSpan<Element> list(const std::vector<Element>& values) {
    const Element* copy = array(values);
    return {.host = values, .device = on_cpu() ? nullptr : copy};
  }

  template <typename Element>
  const Element* array(const std::vector<Element>& values) {
    Tensor bytes({static_cast<int64_t>(values.size() * sizeof(Element))}, DType::kU8);
    std::memcpy(bytes.view().data, values.data(), static_cast<size_t>(bytes.num_bytes()));
    return put(std::move(bytes)).template as<Element>();
  }

  // The step of the case, which may add its layers. Until the next begin().
  ForwardContext& step(const CheckStep& step);

  // The results on the host, once the device is done. Error: the first one that was kept.
  Result<std::vector<Tensor>> results();

 private:
  // Writes convert(number) for each of the next numbers.
  template <typename Element, typename Convert>
  void fill(std::span<Element> to, const Convert& convert);
  void keep(Status status);
  MutableTensorView put(Tensor tensor);
  Status upload(int32_t num_rows);

  Context& context_;
  device::Device& device_;
  device::Stream& stream_;
  DType round_ = DType::kF32;
  std::vector<float> numbers_;  // taken in turn, again and again
  size_t next_ = 0;
  std::vector<device::Buffer> buffers_;
  std::vector<Tensor> tensors_;  // on the host: the CPU's tensors, or the sources of copies
  std::vector<std::unique_ptr<quant::PackedWeight>> packed_;
  std::vector<MutableTensorView> outputs_;
  Status status_;

  ForwardContext forward_;  // its spans refer to the arrays below
  std::array<int32_t, 2> query_start_{};
  std::array<int32_t, 1> context_lens_{}, tree_starts_{};
  std::array<StateSnapshot, 1> snapshots_{};
  std::vector<int32_t> pages_;
  std::vector<uint64_t> tree_masks_;
  std::optional<DeviceBatchUpload> batch_;
};

}  // namespace heddle::ops
