// SPDX-License-Identifier: Apache-2.0
#include "ops/layout/layout.h"

#include <cstring>

#include <fmt/format.h>

#include "ops/registry.h"

namespace heddle::ops {

Status copy_rows(Context& context, const TensorView& x, std::span<const int32_t> rows,
                 const MutableTensorView& y) {
  const int64_t num_rows = y.shape[0];
  const bool gathers = !rows.empty();
  if (x.dtype != y.dtype || x.shape.rank() != 2 || y.shape.rank() != 2 ||
      x.shape[1] != y.shape[1] ||
      num_rows != (gathers ? static_cast<int64_t>(rows.size()) : x.shape[0])) {
    return invalid_argument(fmt::format("copy_rows: x is {} {}, y is {} {}, {} rows wanted",
                                        to_string(x.dtype), x.shape.to_string(), to_string(y.dtype),
                                        y.shape.to_string(), rows.size()));
  }
  if (context.device == DeviceKind::kCuda) {
    return copy_rows_cuda(static_cast<CudaContext&>(context), x, rows, y);
  }
  const auto row_bytes = static_cast<size_t>(bytes_of(x.dtype, x.shape[1]));
  const int64_t x_stride = bytes_of(x.dtype, x.row_stride);
  const int64_t y_stride = bytes_of(y.dtype, y.row_stride);
  for (int64_t t = 0; t < num_rows; ++t) {
    const int64_t source = gathers ? rows[static_cast<size_t>(t)] : t;
    if (source < 0 || source >= x.shape[0]) {
      return invalid_argument(fmt::format("copy_rows: row {} of {}", source, x.shape[0]));
    }
    std::memcpy(y.as<std::byte>() + t * y_stride, x.as<std::byte>() + source * x_stride, row_bytes);
  }
  return {};
}

namespace {

MutableTensorView column_range(const MutableTensorView& x, int64_t start, int64_t width) {
  return {x.as<std::byte>() + bytes_of(x.dtype, start), x.dtype, Shape{x.shape[0], width},
          x.row_stride};
}

Status infer_columns(std::span<const TensorMeta> inputs, const Attrs& attrs,
                     std::vector<TensorMeta>& outputs) {
  const int64_t start = attrs.integer("start");
  const int64_t width = attrs.integer("width");
  if (inputs[0].rank != 2 || start < 0 || width <= 0 || start + width > inputs[0][1].offset) {
    return invalid_argument(
        fmt::format("columns {} to {} of {}", start, start + width, inputs[0].to_string()));
  }
  outputs.push_back(TensorMeta(inputs[0].dtype, {inputs[0][0], SymbolicDim::fixed(width)}));
  return {};
}

Status launch_columns(Context& context, const LaunchArgs& args) {
  const TensorView& x = args.inputs[0];
  const int64_t width = args.attrs.integer("width");
  const TensorView part(x.as<std::byte>() + bytes_of(x.dtype, args.attrs.integer("start")), x.dtype,
                        Shape{x.shape[0], width}, x.row_stride);
  return copy_rows(context, part, {}, args.outputs[0]);
}

Status infer_concat(std::span<const TensorMeta> inputs, const Attrs&,
                    std::vector<TensorMeta>& outputs) {
  const TensorMeta& a = inputs[0];
  const TensorMeta& b = inputs[1];
  if (a.rank != 2 || b.rank != 2 || !(a[0] == b[0]) || a.dtype != b.dtype) {
    return invalid_argument(fmt::format("concat of {} and {}", a.to_string(), b.to_string()));
  }
  outputs.push_back(TensorMeta(a.dtype, {a[0], SymbolicDim::fixed(a[1].offset + b[1].offset)}));
  return {};
}

Status launch_concat(Context& context, const LaunchArgs& args) {
  const TensorView& a = args.inputs[0];
  const TensorView& b = args.inputs[1];
  const MutableTensorView& y = args.outputs[0];
  if (y.shape != Shape{a.shape[0], a.shape[1] + b.shape[1]} || b.shape[0] != a.shape[0]) {
    return invalid_argument(fmt::format("concat: a is {}, b is {}, y is {}", a.shape.to_string(),
                                        b.shape.to_string(), y.shape.to_string()));
  }
  HEDDLE_RETURN_IF_ERROR(copy_rows(context, a, {}, column_range(y, 0, a.shape[1])));
  return copy_rows(context, b, {}, column_range(y, a.shape[1], b.shape[1]));
}

Status infer_join_rows(std::span<const TensorMeta> inputs, const Attrs& attrs,
                       std::vector<TensorMeta>& outputs) {
  const int64_t count = attrs.integer("count");
  const TensorMeta& x = inputs[0];
  if (x.rank != 2 || count < 1 || x[0].scale % count != 0 || x[0].offset % count != 0 ||
      !x[1].is_fixed()) {
    return invalid_argument(
        fmt::format("join_rows of {}: every {} rows cannot become one", x.to_string(), count));
  }
  SymbolicDim rows = x[0];
  rows.scale /= count;
  rows.offset /= count;
  outputs.push_back(TensorMeta(x.dtype, {rows, SymbolicDim::fixed(count * x[1].offset)}));
  return {};
}

Status launch_join_rows(Context& context, const LaunchArgs& args) {
  const TensorView& x = args.inputs[0];
  const MutableTensorView& y = args.outputs[0];
  const int64_t count = args.attrs.integer("count");
  const int64_t H = x.shape[1];
  if (x.shape[0] != count * y.shape[0] || y.shape[1] != count * H) {
    return invalid_argument(fmt::format("join_rows: x is {}, y is {}, {} rows become one",
                                        x.shape.to_string(), y.shape.to_string(), count));
  }
  for (int64_t i = 0; i < count; ++i) {
    const TensorView every(x.as<std::byte>() + i * bytes_of(x.dtype, x.row_stride), x.dtype,
                           Shape{y.shape[0], H}, count * x.row_stride);
    HEDDLE_RETURN_IF_ERROR(copy_rows(context, every, {}, column_range(y, i * H, H)));
  }
  return {};
}

Status infer_logit_rows(std::span<const TensorMeta> inputs, const Attrs&,
                        std::vector<TensorMeta>& outputs) {
  if (inputs[0].rank != 2) {
    return invalid_argument(fmt::format("logit_rows takes [T, H], got {}", inputs[0].to_string()));
  }
  outputs.push_back(TensorMeta(inputs[0].dtype, {SymbolicDim::of(Symbol::kLogits), inputs[0][1]}));
  return {};
}

Status launch_logit_rows(Context& context, const LaunchArgs& args) {
  const std::span<const int32_t> rows = args.forward.logit_rows;
  const TensorView& x = args.inputs[0];
  const MutableTensorView& y = args.outputs[0];
  if (y.shape != Shape{std::ssize(rows), x.shape[1]}) {
    return invalid_argument(fmt::format("logit_rows: x is {}, y is {}, {} rows wanted",
                                        x.shape.to_string(), y.shape.to_string(), rows.size()));
  }
  if (rows.empty()) return {};  // copy_rows() would take an empty list for all rows
  if (context.device == DeviceKind::kCpu) return copy_rows(context, x, rows, y);
  return copy_rows(context, x, {args.forward.batch.logit_rows, rows.size()}, y);
}

constexpr OpDef::Alias kColumnRange[] = {{.output = 0, .input = 0}};

}  // namespace

std::span<const OpDef> layout_ops() {
  static const OpDef kOps[] = {
      {.name = "columns",
       .num_inputs = 1,
       .aliases = kColumnRange,
       .infer = infer_columns,
       .launch = launch_columns},
      {.name = "concat", .num_inputs = 2, .infer = infer_concat, .launch = launch_concat},
      {.name = "join_rows", .num_inputs = 1, .infer = infer_join_rows, .launch = launch_join_rows},
      {.name = "logit_rows",
       .effects = kReadsContext,
       .num_inputs = 1,
       .infer = infer_logit_rows,
       .launch = launch_logit_rows},
  };
  return kOps;
}

}  // namespace heddle::ops
