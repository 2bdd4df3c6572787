// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/adapter_product.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/cpu/row_tasks.h"
#include "ops/gemm/product_contract.h"
#include "ops/gemm/row_dot.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

Status check_adapter_device(const Context& context, const char* op) {
  if (context.device == DeviceKind::kCpu) return ok_status();
  return unimplemented(
      fmt::format("{} runs on the CPU only; merge the adapter with heddle merge", op));
}

// Checks that each row has one of `num_slots` slots, or -1 for none.
Status check_slots(const char* op, const TensorView& slots, int64_t num_slots) {
  const auto* const values = slots.as<int32_t>();
  const int64_t T = slots.shape[0];
  const auto* const wrong = std::find_if(
      values, values + T, [&](int32_t slot) { return slot < -1 || slot >= num_slots; });
  if (wrong == values + T) return ok_status();
  return invalid_argument(fmt::format("{}: slots has {} at index {}, it must be from -1 to {}", op,
                                      *wrong, wrong - values, num_slots - 1));
}

// Checks the parts of the columns that the product fills, for the slots that rows have; those of
// other slots may be anything.
Status check_parts(const AdapterExpandArgs& args, int64_t num_parts) {
  const auto* const slots = args.slots.as<int32_t>();
  const int64_t T = args.slots.shape[0], N = args.y.shape[1];
  const auto [S, W] = std::pair(args.parts.shape[0], args.parts.shape[1]);
  for (int32_t slot = 0; slot < S; ++slot) {
    if (std::find(slots, slots + T, slot) == slots + T) continue;
    const int32_t* const parts = args.parts.as<int32_t>() + slot * W + args.first;
    const auto* const wrong =
        std::find_if(parts, parts + N, [&](int32_t part) { return part < 0 || part >= num_parts; });
    if (wrong == parts + N) continue;
    return invalid_argument(fmt::format(
        "adapter_expand: parts has {} for column {} of slot {}, it must be from 0 to {}", *wrong,
        args.first + (wrong - parts), slot, num_parts - 1));
  }
  return ok_status();
}

// The end of the run of equal numbers that begins at `begin`.
int64_t end_of_run(const int32_t* values, int64_t begin, int64_t end) {
  return std::find_if(values + begin, values + end,
                      [&](int32_t value) { return value != values[begin]; }) -
         values;
}

// A product with matrix `slot` of a stack [S, rows, width].
Product product_with(const TensorView& stack, int64_t slot) {
  const int64_t rows = stack.shape[1], width = stack.shape[2];
  return {.weight = static_cast<const std::byte*>(stack.data) +
                    bytes_of(stack.dtype, slot * rows * width),
          .weight_stride = width,
          .weight_dtype = stack.dtype,
          .K = width};
}

void shrink_rows(const AdapterShrinkArgs& args, int64_t begin, int64_t end) {
  const auto* const slots = args.slots.as<int32_t>();
  const int64_t J = args.h.shape[1];
  while (begin < end) {
    const int64_t run_end = end_of_run(slots, begin, end);
    const int32_t slot = slots[begin];
    for (int64_t t = begin; t < run_end && slot < 0; ++t) {
      std::fill_n(args.h.row<float>(t), J, 0.0f);
    }
    if (slot >= 0) {
      Product product = product_with(args.a, slot);
      product.x = args.x.row<float>(begin);
      product.x_stride = args.x.row_stride;
      product.y = args.h.row<float>(begin);
      product.y_stride = args.h.row_stride;
      product.T = run_end - begin;
      product.N = J;
      row_dot(product, {.row_end = product.T, .column_end = J});
      const float scale = args.scales.as<float>()[slot];
      for (int64_t t = begin; t < run_end; ++t) {
        float* const h = args.h.row<float>(t);
        for (int64_t j = 0; j < J; ++j) h[j] *= scale;
      }
    }
    begin = run_end;
  }
}

void expand_rows(const AdapterExpandArgs& args, int64_t begin, int64_t end) {
  const int64_t N = args.y.shape[1], W = args.b.shape[1], R = args.b.shape[2];
  for (int64_t t = begin; t < end; ++t) {
    const int32_t slot = args.slots.as<int32_t>()[t];
    if (slot < 0) continue;
    const int32_t* const parts = args.parts.as<int32_t>() + slot * W;
    Product product = product_with(args.b, slot);
    product.y = args.y.row<float>(t) - args.first;  // indexed by columns of the layer
    product.bias = product.y;                       // the product is added to what y holds
    product.T = 1;
    product.N = W;
    for (int64_t w = args.first; w < args.first + N;) {
      const int64_t run_end = end_of_run(parts, w, args.first + N);
      product.x = args.h.row<float>(t) + parts[w] * R;
      row_dot(product, {.row_end = 1, .column_begin = w, .column_end = run_end});
      w = run_end;
    }
  }
}

}  // namespace

Status adapter_shrink(Context& context, const AdapterShrinkArgs& args) {
  Dim T{"T"}, K{"K"}, S{"S"}, J{"J"};
  ShapeContract contract("adapter_shrink");
  contract.expect("x", args.x, {&T, &K}, activations(context))
      .expect("a", args.a, {&S, &J, &K}, kFloating)
      .expect("slots", args.slots, {&T}, DType::kI32)
      .expect("scales", args.scales, {&S}, DType::kF32)
      .expect("h", args.h, {&T, &J}, DType::kF32);
  require_row_stride(contract, "x", args.x);
  require_row_stride(contract, "h", args.h);
  HEDDLE_RETURN_IF_ERROR(contract.require(args.a.dense(), "a", 0, "be dense").status());
  HEDDLE_RETURN_IF_ERROR(check_adapter_device(context, "adapter_shrink"));
  HEDDLE_RETURN_IF_ERROR(check_slots("adapter_shrink", args.slots, S));
  for_row_ranges(static_cast<CpuContext&>(context).pool, T, K * J / 4,
                 [&](int64_t begin, int64_t end) { shrink_rows(args, begin, end); });
  return ok_status();
}

Status adapter_expand(Context& context, const AdapterExpandArgs& args) {
  Dim T{"T"}, J{"J"}, S{"S"}, W{"W"}, R{"R"}, N{"N"};
  ShapeContract contract("adapter_expand");
  contract.expect("h", args.h, {&T, &J}, DType::kF32)
      .expect("b", args.b, {&S, &W, &R}, kFloating)
      .expect("parts", args.parts, {&S, &W}, DType::kI32)
      .expect("slots", args.slots, {&T}, DType::kI32)
      .expect("y", args.y, {&T, &N}, DType::kF32);
  require_row_stride(contract, "h", args.h);
  require_row_stride(contract, "y", args.y);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(contract
                             .require(R > 0 && J % R == 0, "R", static_cast<double>(int64_t{R}),
                                      "divide the width of h")
                             .require(args.first >= 0 && args.first + N <= W, "first",
                                      static_cast<double>(args.first), "leave N of W columns")
                             .require(args.b.dense(), "b", 0, "be dense")
                             .require(args.parts.dense(), "parts", 0, "be dense")
                             .status());
  HEDDLE_RETURN_IF_ERROR(check_adapter_device(context, "adapter_expand"));
  HEDDLE_RETURN_IF_ERROR(check_slots("adapter_expand", args.slots, S));
  HEDDLE_RETURN_IF_ERROR(check_parts(args, J / R));
  for_row_ranges(static_cast<CpuContext&>(context).pool, T, N * R / 4,
                 [&](int64_t begin, int64_t end) { expand_rows(args, begin, end); });
  return ok_status();
}

namespace {

Status infer_adapter_shrink(std::span<const TensorMeta> inputs, const Attrs&,
                            std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  const TensorMeta &a = inputs[1], &slots = inputs[2], &scales = inputs[3];
  if (x.rank != 2 || a.rank != 3 || !(x[1] == a[2]) || !kFloating.contains(a.dtype)) {
    return invalid_argument(
        fmt::format("adapter_shrink takes [T, K] and floating [S, J, K], got {} and {}",
                    x.to_string(), a.to_string()));
  }
  if (slots.rank != 1 || slots.dtype != DType::kI32 || scales.rank != 1 ||
      scales.dtype != DType::kF32 || !(scales[0] == a[0])) {
    return invalid_argument(
        fmt::format("adapter_shrink takes slots [T] i32 and scales [S] f32, got {} and {}",
                    slots.to_string(), scales.to_string()));
  }
  outputs.push_back(TensorMeta(DType::kF32, {x[0], a[1]}));
  return {};
}

Status infer_adapter_expand(std::span<const TensorMeta> inputs, const Attrs&,
                            std::vector<TensorMeta>& outputs) {
  const TensorMeta& y = inputs[0];
  const TensorMeta &h = inputs[1], &b = inputs[2], &parts = inputs[3], &slots = inputs[4];
  if (y.rank != 2 || b.rank != 3 || y[1].offset > b[1].offset || !kFloating.contains(b.dtype)) {
    return invalid_argument(
        fmt::format("adapter_expand takes [T, N] and floating [S, W, R], W >= N, got {} and {}",
                    y.to_string(), b.to_string()));
  }
  if (h.rank != 2 || h.dtype != DType::kF32 || parts.rank != 2 || parts.dtype != DType::kI32 ||
      !(parts[0] == b[0]) || !(parts[1] == b[1]) || slots.rank != 1 || slots.dtype != DType::kI32) {
    return invalid_argument(fmt::format(
        "adapter_expand takes h [T, J] f32, parts [S, W] i32 and slots [T] i32, got {}, {} and {}",
        h.to_string(), parts.to_string(), slots.to_string()));
  }
  outputs.push_back(y);
  return {};
}

// The slots of the step's T rows: the graph's input may be as long as the largest step.
TensorView slots_of(const TensorView& slots, int64_t T) {
  return {slots.data, slots.dtype, {std::min(T, slots.shape[0])}};
}

Status launch_adapter_shrink(Context& context, const LaunchArgs& args) {
  return adapter_shrink(context, {.x = args.inputs[0],
                                  .a = args.inputs[1],
                                  .slots = slots_of(args.inputs[2], args.inputs[0].shape[0]),
                                  .scales = args.inputs[3],
                                  .h = args.outputs[0]});
}

Status launch_adapter_expand(Context& context, const LaunchArgs& args) {
  return adapter_expand(context, {.h = args.inputs[1],
                                  .b = args.inputs[2],
                                  .parts = args.inputs[3],
                                  .slots = slots_of(args.inputs[4], args.inputs[0].shape[0]),
                                  .y = args.outputs[0],
                                  .first = args.attrs.integer("first")});
}

constexpr OpDef::Alias kProductInPlace[] = {{.output = 0, .input = 0, .mutates = true}};

}  // namespace

std::span<const OpDef> adapter_ops() {
  static const OpDef kOps[] = {{.name = "adapter_shrink",
                                .num_inputs = 4,
                                .infer = infer_adapter_shrink,
                                .launch = launch_adapter_shrink},
                               {.name = "adapter_expand",
                                .num_inputs = 5,
                                .aliases = kProductInPlace,
                                .infer = infer_adapter_expand,
                                .launch = launch_adapter_expand}};
  return kOps;
}

}  // namespace heddle::ops
