// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/registry.h"

namespace heddle::ops {

Status elementwise(Context& context, const ElementwiseArgs& args) {
  Dim T{"T"}, N{"N"}, one{"1", 1};
  ShapeContract contract("elementwise");
  contract.expect("a", args.a, {&T, &N}, DType::kF32).expect("y", args.y, {&T, &N}, DType::kF32);
  if (args.kind != ElementwiseKind::kSigmoid) {
    const bool per_row =
        (args.kind == ElementwiseKind::kMul || args.kind == ElementwiseKind::kSigmoidMul) &&
        args.b.shape.rank() == 2 && args.b.shape[1] == 1;
    contract.expect("b", args.b, {&T, per_row ? &one : &N}, DType::kF32);
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, elementwise, args);
}

namespace {

Status infer_same(std::span<const TensorMeta> inputs, const Attrs&,
                  std::vector<TensorMeta>& outputs) {
  if (inputs[0].rank != 2 || inputs[0].dtype != DType::kF32 ||
      (inputs.size() == 2 && !(inputs[0] == inputs[1]))) {
    return invalid_argument(fmt::format("takes float32 [T, N] tensors of one shape, got {} and {}",
                                        inputs[0].to_string(), inputs.back().to_string()));
  }
  outputs.push_back(inputs[0]);
  return {};
}

Status infer_gated(std::span<const TensorMeta> inputs, const Attrs& attrs,
                   std::vector<TensorMeta>& outputs) {
  const bool per_row = inputs[1].rank == 2 && inputs[0].rank == 2 && inputs[1][0] == inputs[0][0] &&
                       inputs[1][1] == SymbolicDim::fixed(1);
  if (!per_row) return infer_same(inputs, attrs, outputs);
  outputs.push_back(inputs[0]);
  return {};
}

Status infer_silu_mul(std::span<const TensorMeta> inputs, const Attrs&,
                      std::vector<TensorMeta>& outputs) {
  if (inputs[0].rank != 2 || inputs[0].dtype != DType::kF32 || inputs[0][1].offset % 2 != 0) {
    return invalid_argument(
        fmt::format("silu_mul takes float32 [T, 2*I], got {}", inputs[0].to_string()));
  }
  outputs.push_back(
      TensorMeta(DType::kF32, {inputs[0][0], SymbolicDim::fixed(inputs[0][1].offset / 2)}));
  return {};
}

template <ElementwiseKind kKind>
Status launch_binary(Context& context, const LaunchArgs& args) {
  return elementwise(context, {.kind = kKind,
                               .a = args.inputs[0],
                               .b = args.inputs.size() > 1 ? args.inputs[1] : TensorView(),
                               .y = args.outputs[0]});
}

Status launch_silu_mul(Context& context, const LaunchArgs& args) {
  const TensorView& gate_up = args.inputs[0];
  const Shape half{gate_up.shape[0], gate_up.shape[1] / 2};
  return elementwise(context,
                     {.kind = ElementwiseKind::kSiluMul,
                      .a = {gate_up.data, gate_up.dtype, half, gate_up.row_stride},
                      .b = {gate_up.as<float>() + half[1], gate_up.dtype, half, gate_up.row_stride},
                      .y = args.outputs[0]});
}

}  // namespace

std::span<const OpDef> elementwise_ops() {
  static const OpDef kOps[] = {
      {.name = "add",
       .num_inputs = 2,
       .infer = infer_same,
       .launch = launch_binary<ElementwiseKind::kAdd>},
      {.name = "mul",
       .num_inputs = 2,
       .infer = infer_gated,
       .launch = launch_binary<ElementwiseKind::kMul>},
      {.name = "sigmoid",
       .num_inputs = 1,
       .infer = infer_same,
       .launch = launch_binary<ElementwiseKind::kSigmoid>},
      {.name = "sigmoid_mul",
       .num_inputs = 2,
       .infer = infer_gated,
       .launch = launch_binary<ElementwiseKind::kSigmoidMul>},
      {.name = "silu_mul", .num_inputs = 1, .infer = infer_silu_mul, .launch = launch_silu_mul},
  };
  return kOps;
}

}  // namespace heddle::ops
