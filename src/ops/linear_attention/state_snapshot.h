// SPDX-License-Identifier: Apache-2.0
// Ops on whole states, all layers, at the head of a step. Each takes a list and is one
// launch:
//
//   save_snapshots     snapshots[to] <- round(working[from])
//   restore_snapshots  working[to] <- snapshots[from]
//   copy_states        working[to] <- working[from]
//   zero_states        working[slot] <- 0
//
// The rounding is that of snapshot_rows.h, also used where a step writes snapshots itself; the
// convolution window stays fp32. The entries of a list are done in its order: one may read what an
// earlier one wrote.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/forward_context.h"
#include "ops/pool_lists.h"

namespace heddle::ops {

struct SnapshotCopyArgs {
  MirroredSpan<StateLayer> working;  // one entry per layer in both, all layers of one geometry
  MirroredSpan<SnapshotLayer> snapshots;
  MirroredSpan<IdCopy> slots;
};

struct StateCopyArgs {
  MirroredSpan<StateLayer> working;
  MirroredSpan<IdCopy> slots;
};

struct StateZeroArgs {
  MirroredSpan<StateLayer> working;
  MirroredSpan<int32_t> slots;
};

// Each reads one state and writes one for every entry: bandwidth-bound. Allocates nothing. An empty
// list launches nothing.
// Error: kInvalidArgument, naming the tensor or slot that does not fit.
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
