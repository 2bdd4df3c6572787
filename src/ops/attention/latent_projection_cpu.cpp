// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "ops/attention/latent_projection.h"
#include "ops/gemm/row_dot.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/latent_projection_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::latent::HWY_NAMESPACE {

namespace tile = heddle::ops::tile::HWY_NAMESPACE;

template <class T>
struct WeightRows {
  const T* base;
  size_t stride;

  HWY_INLINE const T* operator[](size_t j) const { return base + j * stride; }
};

// A product with the transposed weight: y[r][c] = sum over j < K of x[r][j] * weight[j][c], weight
// [K, N]. It adds up multiples of the weight's rows, so that nothing has to be transposed. Every
// element is summed in ascending order of j.
template <class T>
void add_weight_rows_as(const Product& rows, const T* weight) {
  constexpr auto kTile = static_cast<int64_t>(tile::kTileRows);
  const auto K = static_cast<size_t>(rows.K);
  const auto stride = static_cast<size_t>(rows.weight_stride);
  const size_t whole = static_cast<size_t>(rows.N) / tile::kLanes * tile::kLanes;
  const WeightRows<T> weights{weight, stride};
  for (int64_t r = 0; r < rows.T; r += kTile) {
    const tile::Coefficients x{rows.x + r * rows.x_stride, static_cast<size_t>(rows.x_stride), 1};
    tile::AccumulateUpTo4<tile::Start::kZero>(
        static_cast<size_t>(std::min(kTile, rows.T - r)), x, weights, whole, K, nullptr,
        rows.y + r * rows.y_stride, static_cast<size_t>(rows.y_stride));
  }
  for (int64_t r = 0; r < rows.T; ++r) {
    const float* x = rows.x + r * rows.x_stride;
    for (size_t c = whole; c < static_cast<size_t>(rows.N); ++c) {
      float sum = 0;
      for (size_t j = 0; j < K; ++j) sum += x[j] * to_float(weights[j][c]);
      rows.y[r * rows.y_stride + static_cast<int64_t>(c)] = sum;
    }
  }
}

void add_weight_rows(const Product& rows) {
  switch (rows.weight_dtype) {
    case DType::kBf16:
      return add_weight_rows_as(rows, static_cast<const Bf16*>(rows.weight));
    case DType::kF16:
      return add_weight_rows_as(rows, static_cast<const F16*>(rows.weight));
    default:
      return add_weight_rows_as(rows, static_cast<const float*>(rows.weight));
  }
}

}  // namespace heddle::ops::latent::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace latent {

HWY_EXPORT(add_weight_rows);

namespace {

void add_on_best_target(const Product& rows) { HWY_DYNAMIC_DISPATCH(add_weight_rows)(rows); }

// Rows of a task, which share one pass over the head's weights.
constexpr int64_t kTaskRows = 64;

// Calls body(head, first row, number of rows) on the pool, for tasks that cover all heads and rows.
template <typename Body>
void for_heads(device::ThreadPool& pool, int64_t num_heads, int64_t T, const Body& body) {
  const int64_t num_blocks = (T + kTaskRows - 1) / kTaskRows;
  pool.parallel_for(num_heads * num_blocks, [&](int64_t task, int /*worker*/) {
    const int64_t first = task % num_blocks * kTaskRows;
    body(task / num_blocks, first, std::min(kTaskRows, T - first));
  });
}

// The head's rows of the weight from number `skipped` on.
const void* weight_of(const LatentProjectionArgs& args, int64_t head, int64_t skipped) {
  const int64_t rows_per_head = args.weight.shape[0] / args.num_heads;
  const int64_t offset = (head * rows_per_head + skipped) * args.weight.row_stride;
  return static_cast<const std::byte*>(args.weight.data) + bytes_of(args.weight.dtype, offset);
}

}  // namespace

}  // namespace latent

Status absorb_query_cpu(CpuContext& context, const LatentProjectionArgs& args) {
  const int64_t C = args.weight.shape[1];
  const int64_t x_dim = args.x.shape[1] / args.num_heads;
  const int64_t y_dim = args.y.shape[1] / args.num_heads;
  latent::for_heads(context.pool, args.num_heads, args.x.shape[0],
                    [&](int64_t h, int64_t first, int64_t T) {
                      latent::add_on_best_target({.x = args.x.row<float>(first) + h * x_dim,
                                                  .x_stride = args.x.row_stride,
                                                  .weight = latent::weight_of(args, h, 0),
                                                  .weight_stride = args.weight.row_stride,
                                                  .weight_dtype = args.weight.dtype,
                                                  .y = args.y.row<float>(first) + h * y_dim,
                                                  .y_stride = args.y.row_stride,
                                                  .T = T,
                                                  .K = args.key_dim,
                                                  .N = C});
                      for (int64_t t = first; t < first + T; ++t) {
                        std::copy_n(args.x.row<float>(t) + h * x_dim + args.key_dim,
                                    x_dim - args.key_dim, args.y.row<float>(t) + h * y_dim + C);
                      }
                    });
  return {};
}

Status expand_values_cpu(CpuContext& context, const LatentProjectionArgs& args) {
  const int64_t C = args.weight.shape[1];
  const int64_t Dv = args.y.shape[1] / args.num_heads;
  latent::for_heads(context.pool, args.num_heads, args.x.shape[0],
                    [&](int64_t h, int64_t first, int64_t T) {
                      row_dot({.x = args.x.row<float>(first) + h * C,
                               .x_stride = args.x.row_stride,
                               .weight = latent::weight_of(args, h, args.key_dim),
                               .weight_stride = args.weight.row_stride,
                               .weight_dtype = args.weight.dtype,
                               .y = args.y.row<float>(first) + h * Dv,
                               .y_stride = args.y.row_stride,
                               .T = T,
                               .K = C,
                               .N = Dv},
                              {.row_end = T, .column_end = Dv});
                    });
  return {};
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
