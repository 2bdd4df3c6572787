// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise.h"

#include <cstddef>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/registry.h"

namespace heddle::ops {

Status elementwise(Context& context, const ElementwiseArgs& args) {
  Dim T{"T"}, N{"N"}, one{"1", 1};
  ShapeContract contract("elementwise");
  const DTypeSet dtypes = activations(context);
  contract.expect("a", args.a, {&T, &N}, dtypes).expect("y", args.y, {&T, &N}, dtypes);
  if (!is_unary(args.kind)) {
    const bool per_row =
        (args.kind == ElementwiseKind::kMul || args.kind == ElementwiseKind::kSigmoidMul) &&
        args.b.shape.rank() == 2 && args.b.shape[1] == 1;
    contract.expect("b", args.b, {&T, per_row ? &one : &N}, dtypes);
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, elementwise, args);
}

namespace {

bool is_floating_matrix(const TensorMeta& x) { return x.rank == 2 && kFloating.contains(x.dtype); }

// `a`, in the dtype that the node asks for.
TensorMeta output_like(const TensorMeta& a, const Attrs& attrs) {
  return {output_dtype(attrs, a.dtype), {a[0], a[1]}};
}

Status infer_same(std::span<const TensorMeta> inputs, const Attrs& attrs,
                  std::vector<TensorMeta>& outputs) {
  const TensorMeta& a = inputs[0];
  const TensorMeta& b = inputs.back();
  if (!is_floating_matrix(a) || !is_floating_matrix(b) || !(a[0] == b[0]) || !(a[1] == b[1])) {
    return invalid_argument(fmt::format("takes floating [T, N] tensors of one shape, got {} and {}",
                                        a.to_string(), b.to_string()));
  }
  outputs.push_back(output_like(a, attrs));
  return {};
}

Status infer_gated(std::span<const TensorMeta> inputs, const Attrs& attrs,
                   std::vector<TensorMeta>& outputs) {
  const bool per_row = is_floating_matrix(inputs[0]) && is_floating_matrix(inputs[1]) &&
                       inputs[1][0] == inputs[0][0] && inputs[1][1] == SymbolicDim::fixed(1);
  if (!per_row) return infer_same(inputs, attrs, outputs);
  outputs.push_back(output_like(inputs[0], attrs));
  return {};
}

Status infer_silu_mul(std::span<const TensorMeta> inputs, const Attrs& attrs,
                      std::vector<TensorMeta>& outputs) {
  if (!is_floating_matrix(inputs[0]) || inputs[0][1].offset % 2 != 0) {
    return invalid_argument(
        fmt::format("silu_mul takes floating [T, 2*I], got {}", inputs[0].to_string()));
  }
  outputs.push_back(TensorMeta(output_dtype(attrs, inputs[0].dtype),
                               {inputs[0][0], SymbolicDim::fixed(inputs[0][1].offset / 2)}));
  return {};
}

ElementwiseArgs binary_args(ElementwiseKind kind, const LaunchArgs& args) {
  return {.kind = kind,
          .a = args.inputs[0],
          .b = args.inputs.size() > 1 ? args.inputs[1] : TensorView(),
          .y = args.outputs[0]};
}

template <ElementwiseKind kKind>
Status launch_binary(Context& context, const LaunchArgs& args) {
  return elementwise(context, binary_args(kKind, args));
}

Status launch_scale(Context& context, const LaunchArgs& args) {
  ElementwiseArgs scale = binary_args(ElementwiseKind::kScale, args);
  scale.factor = static_cast<float>(args.attrs.real("factor"));
  return elementwise(context, scale);
}

Status launch_silu_mul(Context& context, const LaunchArgs& args) {
  return elementwise(context, silu_mul_args(args));
}

}  // namespace

ElementwiseArgs sigmoid_mul_args(const LaunchArgs& args) {
  return binary_args(ElementwiseKind::kSigmoidMul, args);
}

ElementwiseArgs silu_mul_args(const LaunchArgs& args) {
  const TensorView& gate_up = args.inputs[0];
  const Shape half{gate_up.shape[0], gate_up.shape[1] / 2};
  return {.kind = ElementwiseKind::kSiluMul,
          .a = {gate_up.data, gate_up.dtype, half, gate_up.row_stride},
          .b = {gate_up.as<std::byte>() + bytes_of(gate_up.dtype, half[1]), gate_up.dtype, half,
                gate_up.row_stride},
          .y = args.outputs[0]};
}

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
      {.name = "scale", .num_inputs = 1, .infer = infer_same, .launch = launch_scale},
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
