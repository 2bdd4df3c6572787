// SPDX-License-Identifier: Apache-2.0
// MirroredLists: the lists of ids at the head of a step, where launchers of the device find them:
// on the host as they are and, where the device does not read that, in one block of its memory with
// one copy a step.
//
// Threading: confined. Cost: allocates only where a step has more than any before.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "core/check.h"
#include "device/device.h"
#include "ops/pool_lists.h"

namespace heddle::runner {

class MirroredLists {
 public:
  MirroredLists() = default;

  static Result<MirroredLists> create(device::Device& device);

  // Begins anew, with room for lists of so many bytes together; what was added before is gone.
  // Waits for the copy before the last one: two steps may be in flight.
  Status begin(int64_t num_bytes);

  // The bytes that begin() needs for a list.
  template <typename Element>
  [[nodiscard]] static int64_t bytes_for(std::span<const Element> list) {
    return aligned(static_cast<int64_t>(list.size_bytes()));
  }

  // The mirror is there once upload() has been called. `list` outlives it.
  template <typename Element>
  [[nodiscard]] ops::MirroredSpan<Element> add(std::span<const Element> list) {
    static_assert(std::is_trivially_copyable_v<Element>);
    if (device_ == nullptr || list.empty()) return {.host = list};
    HEDDLE_CHECK_LE(used_ + bytes_for(list), block_.size());
    std::ranges::copy(list, reinterpret_cast<Element*>(current().pinned.data() + used_));
    const auto* mirror = reinterpret_cast<const Element*>(block_.data() + used_);
    used_ += bytes_for(list);
    return {.host = list, .device = mirror};
  }

  Status upload(device::Stream& stream);

 private:
  struct HostBlock {
    device::Buffer pinned;
    std::unique_ptr<device::Event> copied;
  };

  [[nodiscard]] HostBlock& current() { return host_blocks_[current_]; }

  static int64_t aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

  device::Device* device_ = nullptr;  // null: it reads the host's memory
  device::Buffer block_;
  std::array<HostBlock, 2> host_blocks_;  // used in turn
  size_t current_ = 0;
  int64_t used_ = 0;
};

}  // namespace heddle::runner
