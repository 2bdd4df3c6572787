// SPDX-License-Identifier: Apache-2.0
// StatePool: the memory of the recurrent states of one group of layers. Per layer and part of the
// layout one tensor [slots, ...]; slots = num_slots + 1, slot 0 stands for "none". The scales of an
// i8 part lie directly after its numbers, slot by slot, so that a slot can be given back to the
// system as one stretch of memory.
//
// A slot's contents are whatever its last owner left: a move of the plan (request/batch_plan.h)
// fills it before the first layer of a sequence that starts in it.
//
// Threading: different slots may be used from different threads at once. Cost: create() maps, it
// touches nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "cache/kv_layout.h"
#include "core/tensor.h"
#include "device/device.h"

namespace heddle::cache {

class StatePool {
 public:
  StatePool() = default;

  // Errors: kInvalidArgument for a bad layout, kResourceExhausted when the system refuses the
  // mapping.
  static Result<StatePool> create(device::Device& device, const StateLayout& layout,
                                  int64_t num_slots);

  // The tensor of StateLayout::parts[part].
  [[nodiscard]] MutableTensorView part(int64_t layer, size_t part) const;
  [[nodiscard]] MutableTensorView scales(int64_t layer, size_t part) const;  // empty but for i8

  // The slot's memory may go back to the system; its contents are undefined afterwards.
  Status discard_slot(device::Stream& stream, int32_t slot);

  [[nodiscard]] const StateLayout& layout() const { return layout_; }

  [[nodiscard]] int64_t num_slots() const { return num_slots_; }

  [[nodiscard]] int64_t bytes() const { return memory_.size(); }

 private:
  // One layer's numbers of one part, by slot.
  struct Region {
    std::byte* base = nullptr;
    int64_t slot_bytes = 0;
  };

  [[nodiscard]] Region region(int64_t layer, size_t part) const;

  StateLayout layout_;
  int64_t num_slots_ = 0;
  std::vector<int64_t> part_offsets_;  // in memory_, where a part's layers begin
  device::Buffer memory_;              // by part, then by layer
};

}  // namespace heddle::cache
