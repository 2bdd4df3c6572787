// SPDX-License-Identifier: Apache-2.0
// Ops on whole states, all their parts in all layers, before the forward pass of a step. Each takes
// a list of slots and is one launch:
//
//   save_snapshots     snapshots[to] <- round(working[from])
//   restore_snapshots  working[to] <- snapshots[from]
//   copy_states        working[to] <- working[from]
//   zero_states        working[slot] <- 0
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

struct SnapshotCopyArgs {
  MirroredSpan<StatePartView> parts;  // each has snapshots
  MirroredSpan<IdCopy> slots;
};

struct StateCopyArgs {
  MirroredSpan<StatePartView> parts;
  MirroredSpan<IdCopy> slots;
};

struct StateZeroArgs {
  MirroredSpan<StatePartView> parts;
  MirroredSpan<int32_t> slots;
};

// Each reads one state and writes one for every entry: bandwidth-bound. Allocates nothing. An empty
// list launches nothing.
// Error: kInvalidArgument, naming the part or slot that does not fit.
Status save_snapshots(Context& context, const SnapshotCopyArgs& args);
Status restore_snapshots(Context& context, const SnapshotCopyArgs& args);
Status copy_states(Context& context, const StateCopyArgs& args);
Status zero_states(Context& context, const StateZeroArgs& args);

// Arguments are checked.
Status save_snapshots_cpu(CpuContext& context, const SnapshotCopyArgs& args);
Status save_snapshots_cuda(CudaContext& context, const SnapshotCopyArgs& args);
Status restore_snapshots_cpu(CpuContext& context, const SnapshotCopyArgs& args);
Status restore_snapshots_cuda(CudaContext& context, const SnapshotCopyArgs& args);
Status copy_states_cpu(CpuContext& context, const StateCopyArgs& args);
Status copy_states_cuda(CudaContext& context, const StateCopyArgs& args);
Status zero_states_cpu(CpuContext& context, const StateZeroArgs& args);
Status zero_states_cuda(CudaContext& context, const StateZeroArgs& args);

}  // namespace heddle::ops
