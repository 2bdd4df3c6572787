// SPDX-License-Identifier: Apache-2.0
// StatePool: the memory of the recurrent states of one group of layers. Each part of each layer is
// one tensor [slots, ...] with slots = num_slots + 1; slot 0 means "none". The scales of an i8 part
// directly follow its numbers in each slot, so that a slot is one contiguous range that can be
// returned to the system.
//
// A slot contains whatever its last owner left. A move of the plan (request/batch_plan.h) fills it
// before the first layer of a sequence that starts in it.
//
// Threading: different slots may be used from different threads at once.
// Cost:      create() maps the memory and touches none of it.
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

  // part(): the tensor of StateLayout::parts[part] in a layer. scales(): the scales of its rows.
  [[nodiscard]] MutableTensorView part(int64_t layer, size_t part) const;
  // Empty unless the part is i8.
  [[nodiscard]] MutableTensorView scales(int64_t layer, size_t part) const;

  // Lets the memory of the slot return to the system; its contents are undefined afterwards.
  Status discard_slot(device::Stream& stream, int32_t slot);

  [[nodiscard]] const StateLayout& layout() const { return layout_; }

  [[nodiscard]] int64_t num_slots() const { return num_slots_; }

  [[nodiscard]] int64_t bytes() const { return memory_.size(); }

 private:
  // The memory of one part of one layer, by slot.
  struct Region {
    std::byte* base = nullptr;
    int64_t slot_bytes = 0;
  };

  [[nodiscard]] Region region(int64_t layer, size_t part) const;

  StateLayout layout_;
  int64_t num_slots_ = 0;
  std::vector<int64_t> part_offsets_;  // by part: where its layers begin in memory_, in bytes
  device::Buffer memory_;              // all parts one after the other, each with all layers
};

}  // namespace heddle::cache
