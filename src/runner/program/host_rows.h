// SPDX-License-Identifier: Apache-2.0
// HostRows: rows that a step computed, as fp32 numbers on the host. If the host reads the device's
// memory they stay where they are; otherwise they are copied into pinned memory.
//
// Threading: confined to one thread. Cost: fetch() enqueues one copy; allocates only in a step with
// more rows than any before.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "device/staging.h"

namespace heddle::runner {

class HostRows {
 public:
  // Enqueues the copy of `rows` [N, W] f32, bf16 or f16 in device memory; f32 if the host reads
  // that memory.
  Status fetch(device::Device& device, device::Stream& stream, const MutableTensorView& rows);

  // Converts rows of 16 bits. Called after waiting for the stream.
  void settle();

  // The rows of the last fetch(), valid after settle() and until the next fetch().
  [[nodiscard]] const MutableTensorView& view() const { return rows_; }

 private:
  MutableTensorView rows_;                      // the rows in host memory
  std::optional<device::ReadbackRing> pinned_;  // pinned memory for the copy, a ring of one block
  std::vector<float> converted_;
};

}  // namespace heddle::runner
