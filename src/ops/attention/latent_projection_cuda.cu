// SPDX-License-Identifier: Apache-2.0
// absorb_query: y[t, h] = [W_UK,h' q_nope[t, h] | q_pe[t, h]]. expand_values: y[t, h] = W_UV,h o[t,
// h].
// absorb_kernel: a block owns 8 rows of one head and 256 latent channels, a thread one channel.
// expand_kernel: a warp owns 4 rows and 4 value channels of one head (row_products.cuh).
// Flops: 2 * T * N * C * Dn, or * Dv. The weight is read once per 8, or 4, rows: its bytes bound
// decode.
// The only kernels for these ops on CUDA: all dtypes and widths, exact mode as well.
#include "ops/attention/latent_projection.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_products.cuh"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const void* weight;
  void* y;
  int64_t x_stride, weight_stride, y_stride;
  int64_t T, C;
  int64_t head_rows;     // rows of the weight for each head: Dn + Dv
  int64_t key_dim;       // Dn, key channels that come from the latent row
  int64_t x_dim, y_dim;  // channels of a head of x and of y
  int64_t row_tiles;
  bool aligned;
};

constexpr int kThreads = 256;
constexpr int kTileRows = 8;
constexpr int kLoadsAtOnce = 16;  // loads of weights that are in flight together

// A block computes eight rows of one head and 256 latent channels, a thread one channel: it sums
// x[d] * weight[d, c] in ascending order of d, so that neighbouring threads read neighbouring
// weights. The first block of a tile also copies the channels of q that are not absorbed. Reads
// half of the weight once per eight rows (from the cache after the first) and does 2 * T * N * Dn *
// C flops: decode is bound by the weight's bytes.
template <typename X, typename Weight>
__global__ void __launch_bounds__(kThreads) absorb_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t head = blockIdx.x / p.row_tiles;
  const int64_t t = blockIdx.x % p.row_tiles * kTileRows;
  const int num_rows = static_cast<int>(min(int64_t{kTileRows}, p.T - t));
  const X* x = static_cast<const X*>(p.x) + t * p.x_stride + head * p.x_dim;
  X* y = static_cast<X*>(p.y) + t * p.y_stride + head * p.y_dim;
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c < p.C) {
    const Weight* weight =
        static_cast<const Weight*>(p.weight) + head * p.head_rows * p.weight_stride + c;
    float sums[kTileRows] = {};
    int64_t d = 0;
    for (; d + kLoadsAtOnce <= p.key_dim; d += kLoadsAtOnce) {
      float w[kLoadsAtOnce];
#pragma unroll
      for (int j = 0; j < kLoadsAtOnce; ++j) w[j] = as_float(weight[(d + j) * p.weight_stride]);
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        if (r >= num_rows) break;
#pragma unroll
        for (int j = 0; j < kLoadsAtOnce; ++j) {
          sums[r] = fmaf(as_float(x[r * p.x_stride + d + j]), w[j], sums[r]);
        }
      }
    }
    for (; d < p.key_dim; ++d) {
      const float w = as_float(weight[d * p.weight_stride]);
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        if (r < num_rows) sums[r] = fmaf(as_float(x[r * p.x_stride + d]), w, sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (r < num_rows) y[r * p.y_stride + c] = rounded<X>(sums[r]);
    }
  }
  if (blockIdx.y != 0) return;
  const int64_t rest = p.x_dim - p.key_dim;
  for (int64_t i = threadIdx.x; i < num_rows * rest; i += kThreads) {
    const int64_t r = i / rest;
    const int64_t d = i % rest;
    y[r * p.y_stride + p.C + d] = x[r * p.x_stride + p.key_dim + d];
  }
}

constexpr int kExpandRows = 4;
constexpr int kExpandColumns = 4;
constexpr int kWarps = kThreads / kWarp;

// A warp computes four value channels of one head for four rows (row_products.cuh); the warps of a
// block have neighbouring channels. Reads the other half of the weight once per four rows (from the
// cache after the first) and does 2 * T * N * Dv * C flops: decode is bound by the weight's bytes.
template <typename X, typename Weight>
__global__ void __launch_bounds__(kThreads) expand_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t head = blockIdx.x / p.row_tiles;
  const int64_t t = blockIdx.x % p.row_tiles * kExpandRows;
  const int64_t v = (int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp) * kExpandColumns;
  if (v >= p.y_dim) return;
  const int lane = threadIdx.x % kWarp;
  const X* x[kExpandRows];
#pragma unroll
  for (int r = 0; r < kExpandRows; ++r) {
    x[r] = static_cast<const X*>(p.x) + min(t + r, p.T - 1) * p.x_stride + head * p.x_dim;
  }
  const Weight* weight[kExpandColumns];
#pragma unroll
  for (int c = 0; c < kExpandColumns; ++c) {
    weight[c] = static_cast<const Weight*>(p.weight) +
                (head * p.head_rows + p.key_dim + min(v + c, p.y_dim - 1)) * p.weight_stride;
  }
  float sums[kExpandRows][kExpandColumns];
  row_products(x, weight, p.aligned, p.C, sums);
#pragma unroll
  for (int r = 0; r < kExpandRows; ++r) {
#pragma unroll
    for (int c = 0; c < kExpandColumns; ++c) {
      if (lane != r * kExpandColumns + c || t + r >= p.T || v + c >= p.y_dim) continue;
      static_cast<X*>(p.y)[(t + r) * p.y_stride + head * p.y_dim + v + c] = rounded<X>(sums[r][c]);
    }
  }
}

Params params_of(const LatentProjectionArgs& args, int64_t tile_rows) {
  const int64_t N = args.num_heads;
  const int64_t C = args.weight.shape[1];
  const int64_t x_dim = args.x.shape[1] / N;
  return {.x = args.x.data,
          .weight = args.weight.data,
          .y = args.y.data,
          .x_stride = args.x.row_stride,
          .weight_stride = args.weight.row_stride,
          .y_stride = args.y.row_stride,
          .T = args.x.shape[0],
          .C = C,
          .head_rows = args.weight.shape[0] / N,
          .key_dim = args.key_dim,
          .x_dim = x_dim,
          .y_dim = args.y.shape[1] / N,
          .row_tiles = ceil_div(args.x.shape[0], tile_rows),
          .aligned = rows_are_aligned(args.x) && bytes_of(args.x.dtype, x_dim) % 16 == 0 &&
                     rows_are_aligned(args.weight)};
}

dim3 grid_for(const Params& params, int64_t num_heads, int64_t blocks) {
  return dim3(static_cast<unsigned>(params.row_tiles * num_heads), static_cast<unsigned>(blocks));
}

}  // namespace

Status absorb_query_cuda(CudaContext& context, const LatentProjectionArgs& args) {
  const Params params = params_of(args, kTileRows);
  const dim3 grid = grid_for(params, args.num_heads, ceil_div(params.C, kThreads));
  return with_scalar(args.x.dtype, [&](auto x) {
    return with_scalar(args.weight.dtype, [&](auto weight) {
      return launch(context, "absorb_query",
                    absorb_kernel<typename decltype(x)::type, typename decltype(weight)::type>,
                    grid, kThreads, params);
    });
  });
}

Status expand_values_cuda(CudaContext& context, const LatentProjectionArgs& args) {
  const Params params = params_of(args, kExpandRows);
  const dim3 grid =
      grid_for(params, args.num_heads, ceil_div(params.y_dim, kWarps * kExpandColumns));
  return with_scalar(args.x.dtype, [&](auto x) {
    return with_scalar(args.weight.dtype, [&](auto weight) {
      return launch(context, "expand_values",
                    expand_kernel<typename decltype(x)::type, typename decltype(weight)::type>,
                    grid, kThreads, params);
    });
  });
}

}  // namespace heddle::ops
