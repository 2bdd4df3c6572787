// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/state_snapshot.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/linear_attention/snapshot_layer.h"

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

}  // namespace heddle::ops
