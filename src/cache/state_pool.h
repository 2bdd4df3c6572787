// SPDX-License-Identifier: Apache-2.0
// StatePool: the memory of the recurrent states. Per linear-attention layer a window of raw inputs
// conv [slots, W-1, channels], oldest row first, and recurrent [slots, Nv, Dv, Dk] with Dk
// contiguous; slots = num_slots + 1, slot 0 is the sink. A slot of int8 matrices has their scales
// [slots, Nv, Dv] behind them, so that it is one piece of memory that can go back.
//
// A slot's contents are whatever its last owner left: zero_slot() or copy_slot() must run before
// the first layer of a sequence that starts in it.
//
// Threading: different slots may be used from different threads at once. Cost: create() maps, it
// touches nothing; zero and copy move bytes_per_slot().
#pragma once

#include <cstdint>

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

  [[nodiscard]] MutableTensorView conv(int64_t layer);
  [[nodiscard]] MutableTensorView recurrent(int64_t layer);
  [[nodiscard]] MutableTensorView scales(int64_t layer);  // empty without int8 matrices

  // All layers, convolution window and matrix. The state of a sequence without tokens.
  Status zero_slot(device::Stream& stream, int32_t slot);

  // All layers. A snapshot of the same format is continued by copying it into a working slot.
  Status copy_slot(device::Stream& stream, int32_t from, int32_t to);

  // The slot's memory may go back to the system; its contents are undefined afterwards.
  Status discard_slot(device::Stream& stream, int32_t slot);

  [[nodiscard]] const StateLayout& layout() const { return layout_; }

  [[nodiscard]] int64_t num_slots() const { return num_slots_; }

  [[nodiscard]] int64_t bytes() const { return memory_.size(); }

 private:
  [[nodiscard]] std::byte* conv_data(int64_t layer) const;
  [[nodiscard]] std::byte* recurrent_data(int64_t layer) const;

  StateLayout layout_;
  int64_t num_slots_ = 0;
  int64_t conv_region_bytes_ = 0;       // one layer
  int64_t recurrent_region_bytes_ = 0;  // one layer
  device::Buffer memory_;               // recurrent of all layers, then conv of all layers
};

}  // namespace heddle::cache
