// SPDX-License-Identifier: Apache-2.0
// Copies of a whole state, all layers, between a working slot and a snapshot slot of another
// format:
//
//   save_snapshot    snapshots[snapshot_slot] <- round(working[working_slot])
//   restore_snapshot working[working_slot] <- snapshots[snapshot_slot]
//
// The rounding is that of snapshot_rows.h, also used where a step writes snapshots itself; the
// convolution window stays fp32.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct StateCopyArgs {
  std::span<const StateLayer> working;  // one entry per layer in both
  std::span<const SnapshotLayer> snapshots;
  int32_t working_slot = 0;
  int32_t snapshot_slot = 0;
};

// Reads one state, writes one: bandwidth-bound. Allocates nothing.
// Error: kInvalidArgument, naming the tensor or slot that does not fit.
Status save_snapshot(Context& context, const StateCopyArgs& args);
Status restore_snapshot(Context& context, const StateCopyArgs& args);
Status save_snapshot_cpu(CpuContext& context, const StateCopyArgs& args);       // args checked
Status save_snapshot_cuda(CudaContext& context, const StateCopyArgs& args);     // args checked
Status restore_snapshot_cpu(CpuContext& context, const StateCopyArgs& args);    // args checked
Status restore_snapshot_cuda(CudaContext& context, const StateCopyArgs& args);  // args checked

}  // namespace heddle::ops
