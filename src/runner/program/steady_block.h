// SPDX-License-Identifier: Apache-2.0
// SteadyBlock: small arrays of a step in one block of a device's memory, copied there with one copy
// and only where they are not what they were in the step before.
//
//   begin() -> add() for each array -> upload() -> at()
//
// Nothing waits: the caller sees to it that the stream has at most so many uploads before it as may
// be in flight. (MirroredLists waits for its copies, which every step makes.)
//
// Threading: confined. Cost: O(bytes); allocates only where a step has more than any before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "device/device.h"
#include "device/staging.h"

namespace heddle::runner {

class SteadyBlock {
 public:
  SteadyBlock(device::Device& device, int64_t max_in_flight)
      : ring_(device, max_in_flight, device::UploadRing::Waits::kNever) {}

  void begin() { asked_.clear(); }

  // Returns where it lies.
  template <typename Element>
  int64_t add(std::span<const Element> values) {
    static_assert(std::has_unique_object_representations_v<Element>);
    const int64_t at = add_zeros<Element>(std::ssize(values));
    std::ranges::copy(std::as_bytes(values), asked_.begin() + at);
    return at;
  }

  // Room for `count` that launches write. They are zero where upload() copied.
  template <typename Element>
  int64_t add_zeros(int64_t count) {
    const size_t at = (asked_.size() + kAlignment - 1) / kAlignment * kAlignment;
    asked_.resize(at + static_cast<size_t>(count) * sizeof(Element));
    return static_cast<int64_t>(at);
  }

  Status upload(device::Stream& stream);

  // In memory of the device, until the next upload() that copies.
  template <typename Element>
  [[nodiscard]] Element* at(int64_t where) const {
    return reinterpret_cast<Element*>(ring_.device() + where);
  }

 private:
  static constexpr size_t kAlignment = 16;

  std::vector<std::byte> asked_, uploaded_;
  device::UploadRing ring_;
};

}  // namespace heddle::runner
