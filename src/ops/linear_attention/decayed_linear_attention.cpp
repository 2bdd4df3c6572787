// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/decayed_linear_attention.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

int64_t decayed_linear_attention_workspace_bytes(const Context& context,
                                                 const DecayedLinearAttentionSizes& sizes) {
  if (context.device != DeviceKind::kCpu) return 0;
  return decayed_linear_attention_workspace_bytes_cpu(static_cast<const CpuContext&>(context),
                                                      sizes);
}

Status decayed_linear_attention(Context& context, const DecayedLinearAttentionArgs& args) {
  constexpr int64_t kMaxDim = 65536;
  Dim T{"T"}, Nv{"Nv"}, Dk{"Dk", args.key_dim}, Dv{"Dv", args.value_dim};
  Dim slots{"slots"}, snapshot_slots{"snapshot slots"};
  DecayedLinearAttentionArgs resolved = args;
  resolved.snapshots = snapshot_or_working(args.snapshots, args.state);
  ShapeContract contract("decayed_linear_attention");
  const auto positive = [&](const char* name, int64_t value) {
    contract.require(value > 0 && value <= kMaxDim, name, static_cast<double>(value),
                     "lie between 1 and 65536");
  };
  positive("num_key_heads", args.num_key_heads);
  positive("key_dim", args.key_dim);
  positive("value_dim", args.value_dim);
  contract.require(args.dt_low >= 0, "dt_low", static_cast<double>(args.dt_low), "not be negative")
      .require(args.dt_high >= args.dt_low, "dt_high", static_cast<double>(args.dt_high),
               "not be less than dt_low")
      .expect("decay", args.decay, {&Nv}, DType::kF32);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  positive("Nv, the number of value heads,", Nv);
  Dim width{"Nv * Dv + 2 * Nk * Dk", Nv * args.value_dim + 2 * args.num_key_heads * args.key_dim};
  Dim value_width{"Nv * Dv", Nv * args.value_dim};
  contract.expect("vkq", args.vkq, {&T, &width}, activations(context))
      .expect("y", args.y, {&T, &value_width}, args.vkq.dtype)
      .expect("state.recurrent", args.state.recurrent, {&slots, &Nv, &Dv, &Dk}, DType::kF32);
  if (args.a.data != nullptr) {
    contract.expect("a", args.a, {&T, &Nv}, DType::kF32)
        .expect("dt_bias", args.dt_bias, {&Nv}, DType::kF32);
  }
  if (args.skip.data != nullptr) contract.expect("skip", args.skip, {&Nv}, DType::kF32);
  expect_snapshot_matrices(contract, resolved.snapshots, {&snapshot_slots, &Nv, &Dv, &Dk});
  HEDDLE_RETURN_IF_ERROR(contract.status());
  if (Nv % args.num_key_heads != 0) {
    return invalid_argument(fmt::format(
        "decayed_linear_attention: {} value heads cannot be shared evenly by {} key heads",
        Nv.value(), args.num_key_heads));
  }
  if (context.device == DeviceKind::kCuda && Dk > kMaxCudaDecayedKeyDim) {
    return unimplemented(fmt::format("decayed_linear_attention: Dk = {}, CUDA takes at most {}",
                                     Dk.value(), kMaxCudaDecayedKeyDim));
  }
  HEDDLE_RETURN_IF_ERROR(check_rows("decayed_linear_attention", args.forward, T));
  // check_batch() has checked the slots already.
  HEDDLE_DCHECK(check_state_slots(*args.forward, slots, snapshot_slots).ok());
  const int64_t needed = decayed_linear_attention_workspace_bytes(
      context, {.max_tokens = T, .key_dim = args.key_dim, .value_dim = args.value_dim});
  if (static_cast<int64_t>(args.workspace.size()) < needed) {
    return invalid_argument(
        fmt::format("decayed_linear_attention: the workspace has {} bytes, {} rows need {}",
                    args.workspace.size(), T.value(), needed));
  }
  return HEDDLE_DISPATCH_DEVICE(context, decayed_linear_attention, resolved);
}

}  // namespace heddle::ops
