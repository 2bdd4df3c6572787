// SPDX-License-Identifier: Apache-2.0
// HostRows: rows that a step computed, as fp32 numbers on the host. Where the host reads the
// device's memory they stay where they are; otherwise a copy brings them into pinned memory.
//
// Threading: confined. Cost: fetch() enqueues one copy; allocates only where a step has more rows
// than any before.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "device/staging.h"

namespace heddle::runner {

class HostRows {
 public:
  // `rows` [N, W] f32, bf16 or f16 in memory of the device. f32 where the host reads that.
  Status fetch(device::Device& device, device::Stream& stream, const MutableTensorView& rows);

  // After the stream was waited for: converts rows of 16 bits.
  void settle();

  // Rows of the last fetch(), complete; valid until the next.
  [[nodiscard]] const MutableTensorView& view() const { return rows_; }

 private:
  MutableTensorView rows_;                      // on the host
  std::optional<device::ReadbackRing> pinned_;  // buffer of one block
  std::vector<float> converted_;
};

}  // namespace heddle::runner
