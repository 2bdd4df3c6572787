// SPDX-License-Identifier: Apache-2.0
// The kernel of linear that reads weights row by row, plain or quantised, and computes all elements
// with row_products(). Compiled for plain weights in linear_cuda.cu and for quantised ones in
// packed_linear.cu.
#pragma once

#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_products.cuh"
#include "ops/gemm/linear.h"

namespace heddle::ops {

namespace linear_rows {

template <typename XRows, typename WeightRows>
struct Params {
  XRows x;
  WeightRows weight;
  const float* bias;  // null: no bias
  TargetRows y;
  int64_t T, K, N;
  int64_t row_tiles, num_tiles;
  bool aligned;
};

inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kWarp;

// A warp computes kRows x kColumns elements of y. The warps of a block have the same rows and
// neighbouring columns; neighbouring blocks have the same columns, so that weights are read from
// memory once and from the caches afterwards. Moves (N * K weights once) + x + y, does 2 * T * N *
// K flops. With one row the floor is the weights' bytes over the bandwidth (tiles of 1 x 2 give
// enough warps and loads in flight for N of 2,048); with many rows, the flops at the rate of fp32
// multiply-adds. Quantised weights are dequantised again for every tile of rows.
template <typename XRows, typename WeightRows, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads, 2)
    linear_kernel(const __grid_constant__ Params<XRows, WeightRows> p) {
  wait_for_inputs();
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    const int64_t t = tile % p.row_tiles * kRows;
    const int64_t n = (tile / p.row_tiles * kWarps + warp) * kColumns;
    if (n >= p.N) continue;
    decltype(p.x.row(0)) x[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = p.x.row(min(t + r, p.T - 1));
    decltype(p.weight.row(0)) weight[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) weight[c] = p.weight.row(min(n + c, p.N - 1));
    float sums[kRows][kColumns];
    row_products(x, weight, p.aligned, p.K, sums);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (lane != r * kColumns + c || t + r >= p.T || n + c >= p.N) continue;
        p.y.store_one(t + r, n + c, p.bias != nullptr ? sums[r][c] + p.bias[n + c] : sums[r][c]);
      }
    }
  }
}

template <int kRows, int kColumns, typename XRows, typename WeightRows>
Status launch_tiles(CudaContext& context, Params<XRows, WeightRows> params) {
  params.row_tiles = ceil_div(params.T, kRows);
  params.num_tiles = params.row_tiles * ceil_div(params.N, kWarps * kColumns);
  return launch(context, "linear", linear_kernel<XRows, WeightRows, kRows, kColumns>,
                grid_of(params.num_tiles), kThreads, params);
}

// Most elements of y that are computed with small tiles.
inline constexpr int64_t kFewElements = 4096;

// `x` and `weight` describe the tensors of the arguments. `aligned` is that of row_products().
template <typename XRows, typename WeightRows>
Status multiply(CudaContext& context, const LinearArgs& args, const XRows& x,
                const WeightRows& weight, bool aligned) {
  const Params<XRows, WeightRows> params{.x = x,
                                         .weight = weight,
                                         .bias = args.bias.as<float>(),
                                         .y = TargetRows::of(args.y),
                                         .T = args.x.shape[0],
                                         .K = args.x.shape[1],
                                         .N = args.y.shape[1],
                                         .aligned = aligned};
  // With few elements, small tiles give more warps and so more loads in flight.
  return params.T == 1 || params.T * params.N <= kFewElements ? launch_tiles<1, 2>(context, params)
                                                              : launch_tiles<4, 4>(context, params);
}

}  // namespace linear_rows

}  // namespace heddle::ops
