// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/causal_conv1d.h"

#include "core/shape_contract.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

Status causal_conv1d(Context& context, const CausalConv1dArgs& args) {
  Dim T{"T"}, C{"C"}, W{"W"}, slots{"slots"}, snapshot_slots{"snapshot slots"};
  CausalConv1dArgs resolved = args;
  resolved.snapshots = snapshot_or_working(args.snapshots, args.state);
  ShapeContract contract("causal_conv1d");
  contract.expect("x", args.x, {&T, &C}, activations(context))
      .expect("weight", args.weight, {&C, &W}, DType::kF32)
      .expect("y", args.y, {&T, &C}, args.x.dtype);
  if (args.bias.data != nullptr) contract.expect("bias", args.bias, {&C}, DType::kF32);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  Dim window{"W - 1", W - 1};
  contract
      .require(W >= 2 && W <= 8, "W, the convolution width", static_cast<double>(W.value()),
               "lie between 2 and 8")
      .expect("state.conv", args.state.conv, {&slots, &window, &C}, DType::kF32)
      .expect("snapshots.conv", resolved.snapshots.conv, {&snapshot_slots, &window, &C},
              DType::kF32);
  if (args.y.data == args.x.data) {
    return invalid_argument("causal_conv1d: y is x; the convolution cannot run in place");
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_rows("causal_conv1d", args.forward, T));
  // check_batch() has checked the slots already.
  HEDDLE_DCHECK(check_state_slots(*args.forward, slots, snapshot_slots).ok());
  return HEDDLE_DISPATCH_DEVICE(context, causal_conv1d, resolved);
}

}  // namespace heddle::ops
