// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/weighted_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/cpu/row_tasks.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

template <typename Scalar>
void add_table_row(const TensorView& table, int64_t row, float weight, float* y) {
  const auto* source = table.row<Scalar>(row);
  for (int64_t h = 0; h < table.shape[1]; ++h) y[h] += weight * to_float(source[h]);
}

void add_weighted(const TensorView& table, int64_t row, float weight, float* y) {
  switch (table.dtype) {
    case DType::kBf16:
      return add_table_row<Bf16>(table, row, weight, y);
    case DType::kF16:
      return add_table_row<F16>(table, row, weight, y);
    default:
      return add_table_row<float>(table, row, weight, y);
  }
}

Status infer_weighted_rows(std::span<const TensorMeta> inputs, const Attrs& attrs,
                           std::vector<TensorMeta>& outputs) {
  const TensorMeta &table = inputs[0], &rows = inputs[1], &weights = inputs[2];
  if (table.rank != 2 || !kFloating.contains(table.dtype) || rows.rank != 2 ||
      rows.dtype != DType::kI32 || !(weights == TensorMeta(DType::kF32, {rows[0], rows[1]}))) {
    return invalid_argument(
        fmt::format("weighted_rows takes [N, H], int32[T, K] and float32[T, K], got {}, {} and {}",
                    table.to_string(), rows.to_string(), weights.to_string()));
  }
  outputs.push_back(TensorMeta(output_dtype(attrs, DType::kF32), {rows[0], table[1]}));
  return {};
}

Status launch_weighted_rows(Context& context, const LaunchArgs& args) {
  return weighted_rows(context, {.table = args.inputs[0],
                                 .rows = args.inputs[1],
                                 .weights = args.inputs[2],
                                 .y = args.outputs[0]});
}

}  // namespace

Status weighted_rows(Context& context, const WeightedRowsArgs& args) {
  Dim T{"T"}, K{"K"}, N{"N"}, H{"H"};
  HEDDLE_RETURN_IF_ERROR(ShapeContract("weighted_rows")
                             .expect("table", args.table, {&N, &H}, kFloating)
                             .expect("rows", args.rows, {&T, &K}, DType::kI32)
                             .expect("weights", args.weights, {&T, &K}, DType::kF32)
                             .expect("y", args.y, {&T, &H}, activations(context))
                             .status());
  if (context.device != DeviceKind::kCpu) {
    return unimplemented("weighted_rows has no CUDA kernel; encode pictures on the CPU");
  }
  for (int64_t t = 0; t < T; ++t) {
    const int32_t* const rows = args.rows.row<int32_t>(t);
    const auto* const outside =
        std::find_if(rows, rows + K, [&](int32_t row) { return row < 0 || row >= N; });
    if (outside == rows + K) continue;
    return invalid_argument(
        fmt::format("weighted_rows: row {} reads row {} of {}", t, *outside, N.value()));
  }
  for_row_ranges(static_cast<CpuContext&>(context).pool, T, K * H, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      auto* const y = args.y.row<float>(t);
      std::fill_n(y, H.value(), 0.0f);
      for (int64_t k = 0; k < K; ++k) {
        add_weighted(args.table, args.rows.row<int32_t>(t)[k], args.weights.row<float>(t)[k], y);
      }
    }
  });
  return {};
}

std::span<const OpDef> weighted_rows_ops() {
  static const OpDef kOps[] = {{.name = "weighted_rows",
                                .num_inputs = 3,
                                .infer = infer_weighted_rows,
                                .launch = launch_weighted_rows}};
  return kOps;
}

}  // namespace heddle::ops
