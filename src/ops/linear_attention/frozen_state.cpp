// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/frozen_state.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/linear_attention/frozen_layer.h"

namespace heddle::ops {

namespace {

Status check(const char* op, const StateCopyArgs& args) {
  if (args.working.size() != args.frozen.size()) {
    return invalid_argument(fmt::format("{}: {} working layers and {} frozen ones", op,
                                        args.working.size(), args.frozen.size()));
  }
  for (size_t layer = 0; layer < args.working.size(); ++layer) {
    const StateLayer& working = args.working[layer];
    const FrozenLayer& frozen = args.frozen[layer];
    Dim slots{"slots"}, frozen_slots{"frozen slots"}, window{"W - 1"}, C{"C"};
    Dim Nv{"Nv"}, Dv{"Dv"}, Dk{"Dk"};
    ShapeContract contract(op);
    contract.expect("working.conv", working.conv, {&slots, &window, &C}, DType::kF32)
        .expect("working.recurrent", working.recurrent, {&slots, &Nv, &Dv, &Dk}, DType::kF32)
        .expect("frozen.conv", frozen.conv, {&frozen_slots, &window, &C}, DType::kF32);
    expect_frozen_matrices(contract, frozen, {&frozen_slots, &Nv, &Dv, &Dk});
    HEDDLE_RETURN_IF_ERROR(contract.status());
    if (args.working_slot < 0 || args.working_slot >= slots || args.frozen_slot < 0 ||
        args.frozen_slot >= frozen_slots) {
      return invalid_argument(fmt::format("{}: working slot {} of {} and frozen slot {} of {}", op,
                                          args.working_slot, slots.value(), args.frozen_slot,
                                          frozen_slots.value()));
    }
  }
  return {};
}

}  // namespace

Status freeze_state(Context& context, const StateCopyArgs& args) {
  HEDDLE_RETURN_IF_ERROR(check("freeze_state", args));
  return HEDDLE_DISPATCH_DEVICE(context, freeze_state, args);
}

Status thaw_state(Context& context, const StateCopyArgs& args) {
  HEDDLE_RETURN_IF_ERROR(check("thaw_state", args));
  return HEDDLE_DISPATCH_DEVICE(context, thaw_state, args);
}

}  // namespace heddle::ops
