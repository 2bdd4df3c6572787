// SPDX-License-Identifier: Apache-2.0
// Copies of a whole state, all layers, between a working slot and a frozen one of another format:
//
//   freeze_state    frozen[frozen_slot] <- round(working[working_slot])
//   thaw_state      working[working_slot] <- frozen[frozen_slot]
//
// The rounding is that of frozen_rows.h, also used where a step writes checkpoints itself; the
// convolution window stays fp32.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct StateCopyArgs {
  std::span<const StateLayer> working;  // one entry per layer in both
  std::span<const FrozenLayer> frozen;
  int32_t working_slot = 0;
  int32_t frozen_slot = 0;
};

// Reads one state, writes one: bandwidth-bound. Allocates nothing.
// Error: kInvalidArgument, naming the tensor or slot that does not fit.
Status freeze_state(Context& context, const StateCopyArgs& args);
Status thaw_state(Context& context, const StateCopyArgs& args);
Status freeze_state_cpu(CpuContext& context, const StateCopyArgs& args);  // args checked
Status thaw_state_cpu(CpuContext& context, const StateCopyArgs& args);    // args checked

}  // namespace heddle::ops
