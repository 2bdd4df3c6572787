// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/linear.h"

#include "core/shape_contract.h"
#include "ops/gemm/product_tasks.h"
#include "ops/gemm/row_stride.h"

namespace heddle::ops {

int64_t linear_workspace_bytes(int64_t max_T, int64_t K, int64_t N, DType weight, bool exact) {
  (void)N;
  return rounded_bytes(max_T, K, weight, product_options(exact));
}

Status linear(Context& context, const LinearArgs& args) {
  Dim T{"T"}, K{"K"}, N{"N"};
  ShapeContract contract("linear");
  contract.expect("x", args.x, {&T, &K}, DType::kF32)
      .expect("weight", args.weight, {&N, &K}, kWeights)
      .expect("y", args.y, {&T, &N}, DType::kF32);
  if (args.bias.data != nullptr) contract.expect("bias", args.bias, {&N}, DType::kF32);
  require_row_stride(contract, "x", args.x);
  require_row_stride(contract, "weight", args.weight);
  require_row_stride(contract, "y", args.y);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  const int64_t needed = linear_workspace_bytes(T, K, N, args.weight.dtype, context.exact);
  HEDDLE_RETURN_IF_ERROR(contract
                             .require(static_cast<int64_t>(args.workspace.size()) >= needed,
                                      "workspace size", static_cast<double>(args.workspace.size()),
                                      "hold linear_workspace_bytes(T, K, N, ...)")
                             .status());
  return HEDDLE_DISPATCH_DEVICE(context, linear, args);
}

}  // namespace heddle::ops
