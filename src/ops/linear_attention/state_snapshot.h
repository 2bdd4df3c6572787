// SPDX-License-Identifier: Apache-2.0
// move_states: whole states, all their parts in all layers, before the forward pass of a step.
// Takes a list of slots and is one launch:
//
//   kSave     snapshots[to] <- round(working[from])
//   kRestore  working[to] <- snapshots[from]
//   kCopy     working[to] <- working[from]
//   kZero     working[to] <- 0
//
// A state is a list of parts, for example a convolution window and the matrices of a recurrence in
// each layer. Parts may differ in shape and in the format of their snapshots. The rounding is that
// of snapshot_rows.h, also used where a step writes snapshots itself. The entries of a list are
// done in its order: one may read what an earlier one wrote.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/forward_context.h"
#include "ops/pool_lists.h"

namespace heddle::ops {

// One part of one layer's states. A slot has `rows` rows of `width` numbers, end to end.
struct StatePartView {
  MutableTensorView working;    // [slots, ..., width] f32
  MutableTensorView snapshots;  // [snapshot slots, ..., width] f32, bf16 or i8; empty where
                                // snapshots lie in working slots
  MutableTensorView scales;  // scales of i8 snapshots: [snapshot slots, ...] f32, one for each row
  int64_t rows = 0;
  int64_t width = 0;
};

// Counts rows and width.
[[nodiscard]] StatePartView state_part(const MutableTensorView& working,
                                       const MutableTensorView& snapshots = {},
                                       const MutableTensorView& scales = {});

enum class StateMove : uint8_t { kSave, kRestore, kCopy, kZero };

struct StateMoveArgs {
  StateMove move = StateMove::kCopy;
  MirroredSpan<StatePartView> parts;  // each has snapshots, where they are saved or restored
  MirroredSpan<IdCopy> slots;
};

// Reads one state and writes one for every entry: bandwidth-bound. Allocates nothing. An empty list
// launches nothing.
// Error: kInvalidArgument, naming the part or slot that does not fit.
Status move_states(Context& context, const StateMoveArgs& args);
Status move_states_cpu(CpuContext& context, const StateMoveArgs& args);    // args already checked
Status move_states_cuda(CudaContext& context, const StateMoveArgs& args);  // args already checked

}  // namespace heddle::ops
