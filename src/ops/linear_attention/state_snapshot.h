// SPDX-License-Identifier: Apache-2.0
// move_states: copies, zeroes, saves or restores whole states, all their parts in all layers,
// before the forward pass of a step. A list of slots is processed in one launch:
//
//   kSave     snapshots[to] <- round(working[from])
//   kRestore  working[to] <- snapshots[from]
//   kCopy     working[to] <- working[from]
//   kZero     working[to] <- 0
//
// A state is a list of parts, for example a convolution window and the matrices of a recurrence in
// each layer. Parts may differ in shape and in the format of their snapshots. Rounding is that of
// snapshot_rows.h, as when a step itself writes snapshots. The entries of a list are processed in
// order: an entry may read what an earlier one wrote.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/forward_context.h"
#include "ops/pool_lists.h"

namespace heddle::ops {

// One part of the states of one layer. A slot has `rows` rows of `width` numbers without gaps.
struct StatePartView {
  MutableTensorView working;  // pool of working states [slots, ..., width] f32
  // [snapshot slots, ..., width] f32, bf16 or i8; empty if snapshots are stored in working slots.
  MutableTensorView snapshots;
  MutableTensorView scales;  // scales of i8 snapshots: [snapshot slots, ...] f32, one for each row
  int64_t rows = 0;
  int64_t width = 0;
};

// Makes a view and computes its rows and width.
[[nodiscard]] StatePartView state_part(const MutableTensorView& working,
                                       const MutableTensorView& snapshots = {},
                                       const MutableTensorView& scales = {});

enum class StateMove : uint8_t { kSave, kRestore, kCopy, kZero };

struct StateMoveArgs {
  StateMove move = StateMove::kCopy;
  // Parts to move; each must have snapshots if the list saves or restores.
  MirroredSpan<StatePartView> parts;
  MirroredSpan<IdCopy> slots;
};

// Reads one state and writes one for every entry: bandwidth-bound. Allocates nothing. An empty list
// launches nothing. Error: kInvalidArgument, naming the part or slot that does not fit.
Status move_states(Context& context, const StateMoveArgs& args);
Status move_states_cpu(CpuContext& context, const StateMoveArgs& args);    // args already checked
Status move_states_cuda(CudaContext& context, const StateMoveArgs& args);  // args already checked

}  // namespace heddle::ops
