// SPDX-License-Identifier: Apache-2.0
// SteadyBlock: small arrays of a step in one block of device memory, uploaded together and only if
// they differ from those of the step before.
//
//   begin() -> add() for each array -> upload() -> at()
//
// Nothing waits: the caller ensures that at most `max_in_flight` uploads are enqueued and not
// executed. (MirroredLists waits for its copies, which every step makes.)
//
// Threading: confined to one thread. Cost: O(bytes); allocates only in a step with more bytes than
// any before.
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

  // Appends an array and returns its offset in the block, in bytes.
  template <typename Element>
  int64_t add(std::span<const Element> values) {
    static_assert(std::has_unique_object_representations_v<Element>);
    const int64_t at = add_zeros<Element>(std::ssize(values));
    std::ranges::copy(std::as_bytes(values), asked_.begin() + at);
    return at;
  }

  // Appends room for `count` elements that launches write. They are zero in steps whose upload()
  // copies.
  template <typename Element>
  int64_t add_zeros(int64_t count) {
    const size_t at = (asked_.size() + kAlignment - 1) / kAlignment * kAlignment;
    asked_.resize(at + static_cast<size_t>(count) * sizeof(Element));
    return static_cast<int64_t>(at);
  }

  Status upload(device::Stream& stream);

  // The array at offset `where`, in device memory. Valid until the next upload() that copies.
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
