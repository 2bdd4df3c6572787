// SPDX-License-Identifier: Apache-2.0
// MirroredLists: the lists of ids for the moves at the head of a step, in memory that launchers can
// read: the host lists themselves and, if the device does not read host memory, a copy of all lists
// in one block of device memory, with one upload a step.
//
// Threading: confined to one thread. Cost: allocates only in a step with longer lists than any
// before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "core/check.h"
#include "device/device.h"
#include "device/staging.h"
#include "ops/pool_lists.h"

namespace heddle::runner {

class MirroredLists {
 public:
  MirroredLists() = default;

  explicit MirroredLists(device::Device& device);

  // Clears the lists and reserves `num_bytes` for all of them. Waits for the upload before the last
  // one: two steps may be in flight.
  Status begin(device::Stream& stream, int64_t num_bytes);

  // The bytes that begin() must reserve for a list.
  template <typename Element>
  [[nodiscard]] static int64_t bytes_for(std::span<const Element> list) {
    return aligned(static_cast<int64_t>(list.size_bytes()));
  }

  // Adds a list, which must outlive the result. The device copy is valid after upload().
  template <typename Element>
  [[nodiscard]] ops::MirroredSpan<Element> add(std::span<const Element> list) {
    static_assert(std::is_trivially_copyable_v<Element>);
    if (!ring_ || list.empty()) return {.host = list};
    HEDDLE_CHECK_LE(used_ + bytes_for(list), room_);
    std::ranges::copy(list, reinterpret_cast<Element*>(ring_->host() + used_));
    const auto* mirror = reinterpret_cast<const Element*>(ring_->device() + used_);
    used_ += bytes_for(list);
    return {.host = list, .device = mirror};
  }

  Status upload(device::Stream& stream);

 private:
  static int64_t aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

  std::optional<device::UploadRing> ring_;  // none: the device reads host memory
  int64_t room_ = 0;
  int64_t used_ = 0;
};

}  // namespace heddle::runner
