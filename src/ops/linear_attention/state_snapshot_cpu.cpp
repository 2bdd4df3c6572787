// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "ops/linear_attention/snapshot_layer.h"
#include "ops/linear_attention/state_snapshot.h"

namespace heddle::ops {

namespace {

// A task is a value head of a layer; the first one takes the convolution window along.
template <class CopyWindow, class CopyRows>
void for_each_head(CpuContext& context, const StateCopyArgs& args, const CopyWindow& copy_window,
                   const CopyRows& copy_rows) {
  if (args.working.empty()) return;
  const int64_t Nv = args.working[0].recurrent.shape[1];
  const int64_t num_tasks = std::ssize(args.working) * Nv;
  context.pool.parallel_for(num_tasks, [&](int64_t task, int /*worker*/) {
    const auto layer = static_cast<size_t>(task / Nv);
    const StateLayer& working = args.working[layer];
    const SnapshotLayer& snapshots = args.snapshots[layer];
    const int64_t num_rows = working.recurrent.shape[2];
    const int64_t width = working.recurrent.shape[3];
    const int64_t head = task % Nv;
    if (head == 0) {
      copy_window(working.conv.row<float>(args.working_slot),
                  snapshots.conv.row<float>(args.snapshot_slot),
                  static_cast<size_t>(bytes_of(DType::kF32, working.conv.row_stride)));
    }
    copy_rows(working.recurrent.row<float>(args.working_slot) + head * num_rows * width,
              snapshot_rows(snapshots, args.snapshot_slot, head * num_rows), num_rows, width);
  });
}

}  // namespace

Status save_snapshot_cpu(CpuContext& context, const StateCopyArgs& args) {
  for_each_head(
      context, args,
      [](const float* working, float* snapshots, size_t bytes) {
        std::memcpy(snapshots, working, bytes);
      },
      [](const float* working, const SnapshotRows& snapshots, int64_t num_rows, int64_t width) {
        encode_snapshot_rows(working, num_rows, width, snapshots);
      });
  return {};
}

Status restore_snapshot_cpu(CpuContext& context, const StateCopyArgs& args) {
  for_each_head(
      context, args,
      [](float* working, const float* snapshots, size_t bytes) {
        std::memcpy(working, snapshots, bytes);
      },
      [](float* working, const SnapshotRows& snapshots, int64_t num_rows, int64_t width) {
        decode_snapshot_rows(snapshots, num_rows, width, working);
      });
  return {};
}

}  // namespace heddle::ops
