// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/place_rows.h"

#include <cstring>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/cpu/row_tasks.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

void place_row(const PlaceRowsArgs& args, int64_t t) {
  const int64_t H = args.x.shape[1], row = args.rows.as<int32_t>()[t];
  const auto* const x = args.x.row<float>(t);
  auto* const y = args.y.row<float>(t);
  if (row >= 0 && args.adds) {
    const auto* const staged = args.staged.row<float>(row);
    for (int64_t h = 0; h < H; ++h) y[h] = x[h] + staged[h];
    return;
  }
  const float* const from = row >= 0 ? args.staged.row<float>(row) : x;
  if (from != y) std::memcpy(y, from, static_cast<size_t>(H) * sizeof(float));
}

Status infer_place_rows(std::span<const TensorMeta> inputs, const Attrs& /*attrs*/,
                        std::vector<TensorMeta>& outputs) {
  const TensorMeta &x = inputs[0], &rows = inputs[1], &staged = inputs[2];
  if (x.rank != 2 || !(rows == TensorMeta(DType::kI32, {x[0]})) || staged.rank != 2 ||
      !(staged[1] == x[1]) || staged.dtype != x.dtype) {
    return invalid_argument(
        fmt::format("place_rows takes [T, H], int32[T] and [S, H], got {}, {} and {}",
                    x.to_string(), rows.to_string(), staged.to_string()));
  }
  outputs.push_back(x);
  return {};
}

template <bool kAdds>
Status launch_place_rows(Context& context, const LaunchArgs& args) {
  return place_rows(context, {.x = args.inputs[0],
                              .rows = args.inputs[1],
                              .staged = args.inputs[2],
                              .y = args.outputs[0],
                              .adds = kAdds});
}

}  // namespace

Status place_rows(Context& context, const PlaceRowsArgs& args) {
  Dim T{"T"}, S{"S"}, H{"H"};
  HEDDLE_RETURN_IF_ERROR(ShapeContract("place_rows")
                             .expect("x", args.x, {&T, &H}, activations(context))
                             .expect("rows", args.rows, {&T}, DType::kI32)
                             .expect("staged", args.staged, {&S, &H}, args.x.dtype)
                             .expect("y", args.y, {&T, &H}, args.x.dtype)
                             .status());
  if (context.device != DeviceKind::kCpu) {
    return unimplemented(
        "place_rows has no CUDA kernel; run models with pictures with --device cpu");
  }
  for (int64_t t = 0; t < T; ++t) {
    const int32_t row = args.rows.as<int32_t>()[t];
    if (row < S) continue;
    return invalid_argument(
        fmt::format("place_rows: row {} refers to row {} of {} staged rows", t, row, S.value()));
  }
  for_row_ranges(static_cast<CpuContext&>(context).pool, T, H, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) place_row(args, t);
  });
  return {};
}

std::span<const OpDef> place_rows_ops() {
  static const OpDef kOps[] = {{.name = "place_rows",
                                .num_inputs = 3,
                                .infer = infer_place_rows,
                                .launch = launch_place_rows<false>},
                               {.name = "add_placed_rows",
                                .num_inputs = 3,
                                .infer = infer_place_rows,
                                .launch = launch_place_rows<true>}};
  return kOps;
}

}  // namespace heddle::ops
