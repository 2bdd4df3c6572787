// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise/elementwise.h"

#include <cstddef>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

// Whether rows of N columns can be divided into `count` runs of equal length, more than one column
// each.
bool is_run_count(int64_t count, int64_t N) { return count > 0 && count < N && N % count == 0; }

}  // namespace

Status elementwise(Context& context, const ElementwiseArgs& args) {
  Dim T{"T"}, N{"N"}, runs{"N/n"};
  ShapeContract contract("elementwise");
  const DTypeSet dtypes = activations(context);
  contract.expect("a", args.a, {&T, &N}, dtypes).expect("y", args.y, {&T, &N}, dtypes);
  if (!is_unary(args.kind)) {
    const bool per_run =
        (args.kind == ElementwiseKind::kMul || args.kind == ElementwiseKind::kSigmoidMul) &&
        args.b.shape.rank() == 2 && is_run_count(args.b.shape[1], args.a.shape[1]);
    contract.expect("b", args.b, {&T, per_run ? &runs : &N}, dtypes);
  }
  const bool bounds =
      args.kind == ElementwiseKind::kSoftcap || args.kind == ElementwiseKind::kBoundedSiluMul;
  contract.require(!bounds || args.factor > 0, "factor", static_cast<double>(args.factor),
                   "be positive");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, elementwise, args);
}

namespace {

bool is_floating_matrix(const TensorMeta& x) { return x.rank == 2 && kFloating.contains(x.dtype); }

// The metadata of `a`, with the dtype that the node asks for.
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
  const TensorMeta &a = inputs[0], &b = inputs[1];
  const bool is_number =
      is_floating_matrix(a) && b == TensorMeta(DType::kF32, {SymbolicDim::fixed(1)});
  const bool per_run = is_floating_matrix(a) && is_floating_matrix(b) && b[0] == a[0] &&
                       a[1].is_fixed() && b[1].is_fixed() && is_run_count(b[1].offset, a[1].offset);
  if (!is_number && !per_run) return infer_same(inputs, attrs, outputs);
  outputs.push_back(output_like(inputs[0], attrs));
  return {};
}

Status infer_gate_up(std::span<const TensorMeta> inputs, const Attrs& attrs,
                     std::vector<TensorMeta>& outputs) {
  if (!is_floating_matrix(inputs[0]) || inputs[0][1].offset % 2 != 0) {
    return invalid_argument(fmt::format("takes floating [T, 2*I], got {}", inputs[0].to_string()));
  }
  outputs.push_back(TensorMeta(output_dtype(attrs, inputs[0].dtype),
                               {inputs[0][0], SymbolicDim::fixed(inputs[0][1].offset / 2)}));
  return {};
}

ElementwiseArgs binary_args(ElementwiseKind kind, const LaunchArgs& args) {
  ElementwiseArgs binary{.kind = kind, .a = args.inputs[0], .y = args.outputs[0]};
  if (args.inputs.size() < 2) return binary;
  binary.b = args.inputs[1];
  if (binary.b.shape.rank() == 1) {  // one number, which applies to all columns of all rows
    binary.b = TensorView(binary.b.data, binary.b.dtype, {binary.a.shape[0], 1}, 0);
  }
  return binary;
}

// The arguments for a node whose input is [a | b].
ElementwiseArgs gate_up_args(ElementwiseKind kind, const LaunchArgs& args) {
  const TensorView& gate_up = args.inputs[0];
  const Shape half{gate_up.shape[0], gate_up.shape[1] / 2};
  return {.kind = kind,
          .a = {gate_up.data, gate_up.dtype, half, gate_up.row_stride},
          .b = {gate_up.as<std::byte>() + bytes_of(gate_up.dtype, half[1]), gate_up.dtype, half,
                gate_up.row_stride},
          .y = args.outputs[0]};
}

template <ElementwiseKind kKind>
Status launch_binary(Context& context, const LaunchArgs& args) {
  return elementwise(context, binary_args(kKind, args));
}

template <ElementwiseKind kKind>
Status launch_with_factor(Context& context, const LaunchArgs& args) {
  ElementwiseArgs unary = binary_args(kKind, args);
  unary.factor = static_cast<float>(args.attrs.real("factor"));
  return elementwise(context, unary);
}

template <ElementwiseKind kKind>
Status launch_gate_up(Context& context, const LaunchArgs& args) {
  ElementwiseArgs gated = gate_up_args(kKind, args);
  if (kKind == ElementwiseKind::kBoundedSiluMul) {
    gated.factor = static_cast<float>(args.attrs.real("limit"));
  }
  return elementwise(context, gated);
}

}  // namespace

ElementwiseArgs sigmoid_mul_args(const LaunchArgs& args) {
  return binary_args(ElementwiseKind::kSigmoidMul, args);
}

ElementwiseArgs silu_mul_args(const LaunchArgs& args) {
  return gate_up_args(ElementwiseKind::kSiluMul, args);
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
      {.name = "scale",
       .num_inputs = 1,
       .infer = infer_same,
       .launch = launch_with_factor<ElementwiseKind::kScale>},
      {.name = "softcap",
       .num_inputs = 1,
       .infer = infer_same,
       .launch = launch_with_factor<ElementwiseKind::kSoftcap>},
      {.name = "gelu",
       .num_inputs = 1,
       .infer = infer_same,
       .launch = launch_binary<ElementwiseKind::kGelu>},
      {.name = "erf_gelu",
       .num_inputs = 1,
       .infer = infer_same,
       .launch = launch_binary<ElementwiseKind::kErfGelu>},
      {.name = "squared_relu",
       .num_inputs = 1,
       .infer = infer_same,
       .launch = launch_binary<ElementwiseKind::kSquaredRelu>},
      {.name = "sigmoid",
       .num_inputs = 1,
       .infer = infer_same,
       .launch = launch_binary<ElementwiseKind::kSigmoid>},
      {.name = "sigmoid_mul",
       .num_inputs = 2,
       .infer = infer_gated,
       .launch = launch_binary<ElementwiseKind::kSigmoidMul>},
      {.name = "silu_mul",
       .num_inputs = 1,
       .infer = infer_gate_up,
       .launch = launch_gate_up<ElementwiseKind::kSiluMul>},
      {.name = "bounded_silu_mul",
       .num_inputs = 1,
       .infer = infer_gate_up,
       .launch = launch_gate_up<ElementwiseKind::kBoundedSiluMul>},
      {.name = "gelu_mul",
       .num_inputs = 1,
       .infer = infer_gate_up,
       .launch = launch_gate_up<ElementwiseKind::kGeluMul>},
      {.name = "erf_gelu_mul",
       .num_inputs = 1,
       .infer = infer_gate_up,
       .launch = launch_gate_up<ElementwiseKind::kErfGeluMul>},
  };
  return kOps;
}

}  // namespace heddle::ops
