// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/linear.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/gemm/packed_linear.h"
#include "ops/gemm/product_contract.h"
#include "ops/gemm/product_tasks.h"
#include "ops/registry.h"

namespace heddle::ops {

int64_t linear_workspace_bytes(const Context& context, int64_t max_T, int64_t K, int64_t N,
                               DType weight) {
  if (context.device == DeviceKind::kCuda) {
    const bool dense = weight == DType::kPacked && !context.exact;
    return dense ? packed_linear_workspace_bytes(max_T, K, N) : 0;
  }
  return rounded_bytes(max_T, K, weight, product_options(context));
}

Status linear(Context& context, const LinearArgs& args) {
  Dim T{"T"}, K{"K"}, N{"N"};
  ShapeContract contract("linear");
  contract.expect("x", args.x, {&T, &K}, activations(context))
      .expect("weight", args.weight, {&N, &K}, kWeights)
      .expect("y", args.y, {&T, &N}, DTypeSet(args.x.dtype) | DType::kF32);
  if (args.bias.data != nullptr) contract.expect("bias", args.bias, {&N}, DType::kF32);
  require_row_stride(contract, "x", args.x);
  require_row_stride(contract, "weight", args.weight);
  require_row_stride(contract, "y", args.y);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_weight_device(context, "linear", "weight", args.weight));
  const int64_t needed = linear_workspace_bytes(context, T, K, N, args.weight.dtype);
  HEDDLE_RETURN_IF_ERROR(contract
                             .require(static_cast<int64_t>(args.workspace.size()) >= needed,
                                      "workspace size", static_cast<double>(args.workspace.size()),
                                      "hold linear_workspace_bytes(..., T, K, N, ...)")
                             .status());
  return HEDDLE_DISPATCH_DEVICE(context, linear, args);
}

Status linear_cpu(CpuContext& context, const LinearArgs& args) {
  const ProductOptions options = product_options(context);
  Product product{.x = args.x.as<float>(),
                  .x_stride = args.x.row_stride,
                  .weight = args.weight.data,
                  .weight_stride = args.weight.row_stride,
                  .weight_dtype = args.weight.dtype,
                  .bias = args.bias.as<float>(),
                  .y = args.y.as<float>(),
                  .y_stride = args.y.row_stride,
                  .T = args.x.shape[0],
                  .K = args.x.shape[1],
                  .N = args.weight.shape[0]};
  if (args.weight.packed == nullptr) {
    multiply(context.pool, product, options, args.workspace);
    return ok_status();
  }
  for (const quant::PackedWeight::Part& part : args.weight.packed->parts) {
    Product rows = product;  // columns of y, which are rows of the weight
    rows.y += part.first_row;
    if (rows.bias != nullptr) rows.bias += part.first_row;
    rows.N = part.num_rows;
    if (part.plain.data != nullptr) {
      rows.weight = part.plain.data;
      rows.weight_stride = part.plain.row_stride;
      rows.weight_dtype = part.plain.dtype;
    } else {
      rows.packed = &part.packed;
    }
    multiply(context.pool, rows, options, args.workspace);
  }
  return ok_status();
}

namespace {

// The output has x's dtype, or float32 if the node asks for it (logits and router scores).
Status infer_linear(std::span<const TensorMeta> inputs, const Attrs& attrs,
                    std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  const TensorMeta& weight = inputs[1];
  if (x.rank != 2 || weight.rank != 2 || !kFloating.contains(x.dtype) || !(x[1] == weight[1])) {
    return invalid_argument(fmt::format("linear takes floating [T, K] and [N, K], got {} and {}",
                                        x.to_string(), weight.to_string()));
  }
  outputs.push_back(TensorMeta(output_dtype(attrs, x.dtype), {x[0], weight[0]}));
  return {};
}

Status infer_linear_bias(std::span<const TensorMeta> inputs, const Attrs& attrs,
                         std::vector<TensorMeta>& outputs) {
  const TensorMeta& weight = inputs[1];
  const TensorMeta& bias = inputs[2];
  if (bias.rank != 1 || weight.rank != 2 || bias.dtype != DType::kF32 || !(bias[0] == weight[0])) {
    return invalid_argument(
        fmt::format("linear_bias takes a float32 [N] beside [N, K], got {} and {}",
                    bias.to_string(), weight.to_string()));
  }
  return infer_linear(inputs.first(2), attrs, outputs);
}

int64_t linear_workspace(std::span<const TensorMeta> inputs, const Attrs&, const Extents& largest,
                         const Context& context) {
  return linear_workspace_bytes(context, inputs[0][0].at(largest), inputs[1][1].offset,
                                inputs[1][0].offset, inputs[1].dtype);
}

Status launch_linear(Context& context, const LaunchArgs& args) {
  return linear(context, {.x = args.inputs[0],
                          .weight = args.inputs[1],
                          .bias = args.inputs.size() > 2 ? args.inputs[2] : TensorView(),
                          .y = args.outputs[0],
                          .workspace = args.workspace});
}

}  // namespace

std::span<const OpDef> gemm_ops() {
  static const OpDef kOps[] = {{.name = "linear",
                                .num_inputs = 2,
                                .infer = infer_linear,
                                .workspace_bytes = linear_workspace,
                                .launch = launch_linear},
                               {.name = "linear_bias",
                                .num_inputs = 3,
                                .infer = infer_linear_bias,
                                .workspace_bytes = linear_workspace,
                                .launch = launch_linear}};
  return kOps;
}

}  // namespace heddle::ops
