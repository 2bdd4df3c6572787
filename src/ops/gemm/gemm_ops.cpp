// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/gemm_ops.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/gemm/linear.h"

namespace heddle::ops {

namespace {

Status infer_linear(std::span<const TensorMeta> inputs, const Attrs&,
                    std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  const TensorMeta& weight = inputs[1];
  if (x.rank != 2 || weight.rank != 2 || x.dtype != DType::kF32 || !(x[1] == weight[1])) {
    return invalid_argument(fmt::format("linear takes float32 [T, K] and [N, K], got {} and {}",
                                        x.to_string(), weight.to_string()));
  }
  outputs.push_back(TensorMeta(DType::kF32, {x[0], weight[0]}));
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
  return linear_workspace_bytes(inputs[0][0].at(largest), inputs[1][1].offset, inputs[1][0].offset,
                                inputs[1].dtype, context.exact);
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
