// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/state_snapshot.h"

#include <cstring>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

namespace {

Status check(const char* op, const StateCopyArgs& args) {
  if (args.working.size() != args.snapshots.size()) {
    return invalid_argument(fmt::format("{}: {} working layers and {} of snapshots", op,
                                        args.working.size(), args.snapshots.size()));
  }
  for (size_t layer = 0; layer < args.working.size(); ++layer) {
    const StateLayer& working = args.working[layer];
    const SnapshotLayer& snapshots = args.snapshots[layer];
    Dim slots{"slots"}, snapshot_slots{"snapshot slots"}, window{"W - 1"}, C{"C"};
    Dim Nv{"Nv"}, Dv{"Dv"}, Dk{"Dk"};
    ShapeContract contract(op);
    contract.expect("working.conv", working.conv, {&slots, &window, &C}, DType::kF32)
        .expect("working.recurrent", working.recurrent, {&slots, &Nv, &Dv, &Dk}, DType::kF32)
        .expect("snapshots.conv", snapshots.conv, {&snapshot_slots, &window, &C}, DType::kF32);
    expect_snapshot_matrices(contract, snapshots, {&snapshot_slots, &Nv, &Dv, &Dk});
    HEDDLE_RETURN_IF_ERROR(contract.status());
    if (args.working_slot < 0 || args.working_slot >= slots || args.snapshot_slot < 0 ||
        args.snapshot_slot >= snapshot_slots) {
      return invalid_argument(fmt::format("{}: working slot {} of {} and snapshot slot {} of {}",
                                          op, args.working_slot, slots.value(), args.snapshot_slot,
                                          snapshot_slots.value()));
    }
  }
  return {};
}

}  // namespace

Status save_snapshot(Context& context, const StateCopyArgs& args) {
  HEDDLE_RETURN_IF_ERROR(check("save_snapshot", args));
  return HEDDLE_DISPATCH_DEVICE(context, save_snapshot, args);
}

Status restore_snapshot(Context& context, const StateCopyArgs& args) {
  HEDDLE_RETURN_IF_ERROR(check("restore_snapshot", args));
  return HEDDLE_DISPATCH_DEVICE(context, restore_snapshot, args);
}

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
