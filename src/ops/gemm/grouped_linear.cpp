// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/grouped_linear.h"

#include "core/shape_contract.h"
#include "ops/gemm/row_stride.h"

namespace heddle::ops {

int64_t grouped_linear_workspace_bytes(int64_t max_x_rows, int64_t num_experts, int64_t K,
                                       DType weight, bool exact) {
  return group_task_bytes(num_experts) +
         rounded_bytes(max_x_rows, K, weight, product_options(exact));
}

Status grouped_linear(Context& context, const GroupedLinearArgs& args) {
  Dim S{"S"}, K{"K"}, E{"E"}, N{"N"}, R{"R"}, E1{"E + 1"};
  ShapeContract contract("grouped_linear");
  contract.expect("x", args.x, {&S, &K}, DType::kF32)
      .expect("weight", args.weight, {&E, &N, &K}, kWeights)
      .expect("y", args.y, {&R, &N}, DType::kF32)
      .expect("row_offsets", args.row_offsets, {&E1}, DType::kI32);
  if (args.x_rows.data != nullptr) contract.expect("x_rows", args.x_rows, {&R}, DType::kI32);
  require_row_stride(contract, "x", args.x);
  require_row_stride(contract, "weight", args.weight);
  require_row_stride(contract, "y", args.y);
  contract.require(E1 == E + 1, "the number of row_offsets", static_cast<double>(E1.value()),
                   "be one more than the experts of weight");
  contract.require(args.x_rows.data != nullptr || S == R, "R of y", static_cast<double>(R.value()),
                   "be the rows of x where there are no x_rows");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_expert_weight("grouped_linear", "weight", args.weight));
  const int64_t needed = grouped_linear_workspace_bytes(S, E, K, args.weight.dtype, context.exact);
  HEDDLE_RETURN_IF_ERROR(contract
                             .require(static_cast<int64_t>(args.workspace.size()) >= needed,
                                      "workspace size", static_cast<double>(args.workspace.size()),
                                      "hold grouped_linear_workspace_bytes(S, E, K, ...)")
                             .status());
  return HEDDLE_DISPATCH_DEVICE(context, grouped_linear, args);
}

}  // namespace heddle::ops
