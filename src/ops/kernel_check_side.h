// SPDX-License-Identifier: Apache-2.0
// KernelCheckSide: one of the two devices that a case of kernel_check.cpp runs on: the device under
// test or the CPU. A case asks its side for tensors and runs ops on them. Both sides hand out the
// same numbers in the same order, and their results are compared on the host.
//
// Cases run once for each dtype. The device under test stores activations and weights in that
// dtype, the CPU in fp32; the numbers are the same, because bf16 represents them without rounding.
//
// Every tensor has its own allocation, so that compute-sanitizer finds reads and writes beyond it.
//
// Threading: confined. Errors of allocations and copies are stored and returned by results().
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

// A step of one sequence, whose page ids are 1, 2, ... and whose first state slot is 1.
struct CheckStep {
  static constexpr int32_t kTreeNodes = 3;

  int32_t rows = 5;
  int32_t context = 0;
  int32_t snapshot_tokens = 0;  // take a snapshot to slot 1 after this many rows; 0: no snapshot
  // the last kTreeNodes rows are a draft tree: a root and two nodes that follow it
  bool has_tree = false;
};

class KernelCheckSide {
 public:
  static constexpr int32_t kPageSize = 16;

  KernelCheckSide(device::Device& device, device::Stream& stream, Context& context);

  [[nodiscard]] Context& context() const { return context_; }

  [[nodiscard]] bool on_cpu() const { return context_.device == DeviceKind::kCpu; }

  // The dtype in which this side stores activations and weights.
  [[nodiscard]] DType dtype() const { return on_cpu() ? DType::kF32 : round_; }

  // Begins a case in dtype `round`; frees the tensors of the previous case.
  void begin(DType round);

  // A tensor of numbers within [-1, 1], in dtype().
  MutableTensorView random(const Shape& shape);
  // A weight of numbers within [-1, 1], quantised by a scheme; kInt4 in groups of 32. The shape is
  // [N, K] or [E, N, K].
  TensorView packed(const Shape& shape, quant::Scheme scheme);
  // An fp32 tensor of numbers within [low, high], whatever dtype(): weights of norms, gates,
  // states, logits.
  MutableTensorView floats(const Shape& shape, float low = -1, float high = 1);
  MutableTensorView integers(const std::vector<int32_t>& values);

  // A tensor of zeros.
  MutableTensorView room(const Shape& shape, DType dtype);

  MutableTensorView room(const Shape& shape) { return room(shape, dtype()); }

  std::span<std::byte> workspace(int64_t num_bytes);

  // Allocates an output of an op and registers it as a result that is compared.
  MutableTensorView output(const Shape& shape) { return changed(room(shape)); }

  MutableTensorView changed(const MutableTensorView& view);

  // A copy of `values` in device memory; `values` must stay valid until the kernels that read it
  // ended.
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

  // The batch of the case, to which the case may add layers. Valid until the next begin().
  ForwardContext& step(const CheckStep& step);

  // Waits for the device and returns the case's results in host memory. Error: the first stored
  // one.
  Result<std::vector<Tensor>> results();

 private:
  // Writes convert(x) for each of the next numbers x of numbers_.
  template <typename Element, typename Convert>
  void fill(std::span<Element> to, const Convert& convert);
  void keep(Status status);
  MutableTensorView put(Tensor tensor);
  Status upload(int32_t num_rows);

  Context& context_;
  device::Device& device_;
  device::Stream& stream_;
  DType round_ = DType::kF32;
  std::vector<float> numbers_;  // random numbers that tensors are filled from; read cyclically
  size_t next_ = 0;
  std::vector<device::Buffer> buffers_;
  // Tensors in host memory: those of the CPU side, or the sources of copies to the device.
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<quant::PackedWeight>> packed_;
  std::vector<MutableTensorView> outputs_;
  Status status_;

  ForwardContext forward_;  // the batch; its spans refer to the arrays below
  std::array<int32_t, 2> query_start_{};
  std::array<int32_t, 1> context_lens_{}, tree_starts_{};
  std::array<StateSnapshot, 1> snapshots_{};
  std::vector<int32_t> pages_;
  std::vector<uint64_t> tree_masks_;
  std::optional<DeviceBatchUpload> batch_;
};

}  // namespace heddle::ops
