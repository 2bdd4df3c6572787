// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/moe_route.h"

#include "core/shape_contract.h"
#include "ops/gemm/row_stride.h"

namespace heddle::ops {

Status moe_route(Context& context, const MoeRouteArgs& args) {
  Dim T{"T"}, E{"E"}, A{"A"};
  ShapeContract contract("moe_route");
  contract.expect("logits", args.logits, {&T, &E}, DType::kF32)
      .expect("experts", args.experts, {&T, &A}, DType::kI32)
      .expect("weights", args.weights, {&T, &A}, DType::kF32);
  require_row_stride(contract, "logits", args.logits);
  require_row_stride(contract, "experts", args.experts);
  require_row_stride(contract, "weights", args.weights);
  contract.require(A >= 1 && A <= E && A <= kMaxExpertsPerToken, "A, the experts per token,",
                   static_cast<double>(A.value()), "be in [1, min(E, 64)]");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, moe_route, args);
}

}  // namespace heddle::ops
