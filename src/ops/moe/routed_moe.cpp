// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/routed_moe.h"

#include "core/shape_contract.h"
#include "ops/gemm/grouped_linear.h"
#include "ops/gemm/row_stride.h"
#include "ops/moe/moe_route.h"

namespace heddle::ops {

Status routed_moe(Context& context, const RoutedMoeArgs& args) {
  Dim T{"T"}, H{"H"}, E{"E"}, I{"I"}, I2{"2I"};
  ShapeContract contract("routed_moe");
  contract.expect("x", args.x, {&T, &H}, DType::kF32)
      .expect("router_logits", args.router_logits, {&T, &E}, DType::kF32)
      .expect("w13", args.w13, {&E, &I2, &H}, kWeights)
      .expect(
          "w2", args.w2, {&E, &H, &I},
          args.w13.dtype == DType::kPacked ? kWeights : DTypeSet(args.w13.dtype) | DType::kPacked)
      .expect("y", args.y, {&T, &H}, DType::kF32);
  if (args.w13_bias.data != nullptr) {
    contract.expect("w13_bias", args.w13_bias, {&E, &I2}, DType::kF32)
        .require(args.w13_bias.dense(), "w13_bias", 0, "be dense");
  }
  if (args.w2_bias.data != nullptr) {
    contract.expect("w2_bias", args.w2_bias, {&E, &H}, DType::kF32)
        .require(args.w2_bias.dense(), "w2_bias", 0, "be dense");
  }
  contract.require(args.activation.limit >= 0, "activation.limit",
                   static_cast<double>(args.activation.limit), "be positive, or 0 for none");
  contract.require(I2 == 2 * I, "2I of w13", static_cast<double>(I2.value()), "be twice I of w2");
  require_row_stride(contract, "x", args.x);
  require_row_stride(contract, "router_logits", args.router_logits);
  require_row_stride(contract, "w13", args.w13);
  require_row_stride(contract, "w2", args.w2);
  require_row_stride(contract, "y", args.y);
  const int64_t A = args.experts_per_token;
  contract.require(A >= 1 && A <= E && A <= kMaxExpertsPerToken, "experts_per_token",
                   static_cast<double>(A), "be in [1, min(E, 64)]");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_scoring("routed_moe", args.scoring, args.correction, E, A));
  HEDDLE_RETURN_IF_ERROR(check_expert_weight("routed_moe", "w13", args.w13));
  HEDDLE_RETURN_IF_ERROR(check_expert_weight("routed_moe", "w2", args.w2));
  const RoutedMoeShape shape{
      .H = H, .I = I, .E = E, .A = A, .weight = expert_dtype(args.w13.dtype, args.w2.dtype)};
  contract.require(static_cast<int64_t>(args.workspace.size()) >=
                       routed_moe_workspace_bytes(T, shape, context.exact),
                   "workspace size", static_cast<double>(args.workspace.size()),
                   "hold routed_moe_workspace_bytes(T, ...)");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, routed_moe, args);
}

}  // namespace heddle::ops
