// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/selective_scan.h"

#include "core/shape_contract.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

Status selective_scan(Context& context, const SelectiveScanArgs& args) {
  Dim T{"T"}, C{"C"}, N{"N"}, one{"heads", 1}, slots{"slots"}, snapshot_slots{"snapshot slots"};
  SelectiveScanArgs resolved = args;
  resolved.snapshots = snapshot_or_working(args.snapshots, args.state);
  ShapeContract contract("selective_scan");
  contract.expect("x", args.x, {&T, &C}, activations(context))
      .expect("dt", args.dt, {&T, &C}, DType::kF32)
      .expect("b", args.b, {&T, &N}, args.x.dtype)
      .expect("c", args.c, {&T, &N}, args.x.dtype)
      .expect("z", args.z, {&T, &C}, args.x.dtype)
      .expect("neg_exp_a_log", args.neg_exp_a_log, {&C, &N}, DType::kF32)
      .expect("dt_bias", args.dt_bias, {&C}, DType::kF32)
      .expect("skip", args.skip, {&C}, DType::kF32)
      .expect("y", args.y, {&T, &C}, args.x.dtype)
      .expect("state.recurrent", args.state.recurrent, {&slots, &one, &C, &N}, DType::kF32);
  expect_snapshot_matrices(contract, resolved.snapshots, {&snapshot_slots, &one, &C, &N});
  HEDDLE_RETURN_IF_ERROR(contract.status());
  contract.require(N >= 1 && N <= kMaxScanStates, "N, the state of a channel,",
                   static_cast<double>(N.value()), "lie between 1 and 64");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_rows("selective_scan", args.forward, T));
  // check_batch() has checked the slots already.
  HEDDLE_DCHECK(check_state_slots(*args.forward, slots, snapshot_slots).ok());
  return HEDDLE_DISPATCH_DEVICE(context, selective_scan, resolved);
}

}  // namespace heddle::ops
