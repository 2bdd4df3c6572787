// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_delta_rule.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

int64_t gated_delta_rule_workspace_bytes(const Context& context, const GatedDeltaRuleSizes& sizes) {
  return context.device == DeviceKind::kCpu
             ? gated_delta_rule_workspace_bytes_cpu(static_cast<const CpuContext&>(context), sizes)
             : gated_delta_rule_workspace_bytes_cuda(static_cast<const CudaContext&>(context),
                                                     sizes);
}

Status gated_delta_rule(Context& context, const GatedDeltaRuleArgs& args) {
  constexpr int64_t kMaxDim = 65536;
  Dim T{"T"}, Nv{"Nv"}, Dk{"Dk", args.key_dim}, Dv{"Dv", args.value_dim};
  Dim slots{"slots"}, snapshot_slots{"snapshot slots"};
  GatedDeltaRuleArgs resolved = args;
  resolved.snapshots = snapshot_or_working(args.snapshots, args.state);
  ShapeContract contract("gated_delta_rule");
  const auto positive = [&](const char* name, int64_t value) {
    contract.require(value > 0 && value <= kMaxDim, name, static_cast<double>(value),
                     "lie between 1 and 65536");
  };
  positive("num_key_heads", args.num_key_heads);
  positive("key_dim", args.key_dim);
  positive("value_dim", args.value_dim);
  contract.require(args.beta_scale == 1 || args.beta_scale == 2, "beta_scale",
                   static_cast<double>(args.beta_scale), "be 1 or 2");
  contract.expect("b", args.b, {&T, &Nv}, DType::kF32)
      .expect("neg_exp_a_log", args.neg_exp_a_log, {&Nv}, DType::kF32);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  positive("Nv, the number of value heads,", Nv);
  Dim width{"2 * Nk * Dk + Nv * Dv", 2 * args.num_key_heads * args.key_dim + Nv * args.value_dim};
  Dim value_width{"Nv * Dv", Nv * args.value_dim};
  const bool channel_decay = args.a.shape.rank() == 2 && args.a.shape[1] != Nv;
  Dim gates{channel_decay ? "Nv * Dk" : "Nv", channel_decay ? Nv * args.key_dim : Nv.value()};
  contract.expect("qkv", args.qkv, {&T, &width}, activations(context))
      .expect("a", args.a, {&T, &gates}, DType::kF32)
      .expect("dt_bias", args.dt_bias, {&gates}, DType::kF32)
      .expect("y", args.y, {&T, &value_width}, args.qkv.dtype)
      .expect("state.recurrent", args.state.recurrent, {&slots, &Nv, &Dv, &Dk}, DType::kF32);
  expect_snapshot_matrices(contract, resolved.snapshots, {&snapshot_slots, &Nv, &Dv, &Dk});
  HEDDLE_RETURN_IF_ERROR(contract.status());
  if (Nv % args.num_key_heads != 0) {
    return invalid_argument(
        fmt::format("gated_delta_rule: {} value heads cannot be shared evenly by {} key heads",
                    Nv.value(), args.num_key_heads));
  }
  if (context.device == DeviceKind::kCuda && Dk > kMaxCudaKeyDim) {
    return unimplemented(fmt::format("gated_delta_rule: Dk = {}, CUDA takes at most {}", Dk.value(),
                                     kMaxCudaKeyDim));
  }
  HEDDLE_RETURN_IF_ERROR(check_rows("gated_delta_rule", args.forward, T));
  // check_batch() has checked the slots already.
  HEDDLE_DCHECK(check_state_slots(*args.forward, slots, snapshot_slots).ok());
  const int64_t needed = gated_delta_rule_workspace_bytes(context, {.max_tokens = T,
                                                                    .num_value_heads = Nv,
                                                                    .key_dim = args.key_dim,
                                                                    .value_dim = args.value_dim,
                                                                    .channel_decay = channel_decay,
                                                                    .dtype = args.qkv.dtype});
  if (static_cast<int64_t>(args.workspace.size()) < needed) {
    return invalid_argument(
        fmt::format("gated_delta_rule: the workspace has {} bytes, {} rows need {}",
                    args.workspace.size(), T.value(), needed));
  }
  return HEDDLE_DISPATCH_DEVICE(context, gated_delta_rule, resolved);
}

}  // namespace heddle::ops
