// SPDX-License-Identifier: Apache-2.0
// The two products of routed_moe that read experts' weights row by row, plain or quantised:
// row_products() on tiles of an expert's rows. Compiled for plain weights in routed_moe_cuda.cu and
// for quantised ones in packed_experts.cu.
#pragma once

#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_products.cuh"
#include "ops/moe/device_scratch.h"
#include "ops/moe/expert_activation.cuh"
#include "ops/moe/routed_moe_sm90.h"

namespace heddle::ops::expert_rows {

inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kWarp;
inline constexpr int kTileRows = static_cast<int>(MoeDeviceScratch::kTileRows);
inline constexpr int kColumns = 4;  // columns of y that a warp computes

// Parameters of a product except its x and its weight.
struct ProductParams {
  const float* bias;  // null: no bias
  const int32_t* row_pair;
  const ExpertTile* tiles;
  // up: hidden [R, I], indexed by row; down: [R, H] f32, indexed by (token, slot) pair.
  TargetRows y;
  int64_t A, K, N;  // N is I for the first product (up), H for the second (down)
  ExpertActivation activation;
  bool aligned;  // all rows are 16-byte aligned (row_products())
};

template <typename XRows, typename WeightRows>
struct RowsParams {
  ProductParams product;
  XRows x;  // up: [T, H], indexed by token; down: hidden [R, I], indexed by row
  WeightRows weight;
};

// row_products() of a tile. A tile of one row, the usual case in decode, has more loads in flight;
// the sums are the same.
template <typename XRow, typename WeightRow>
__device__ inline void tile_products(const ExpertTile& tile, const XRow (&x)[kTileRows],
                                     const WeightRow (&weight)[kColumns], const ProductParams& p,
                                     float (&sums)[kTileRows][kColumns]) {
  if (tile.num_rows > 1) {
    row_products(x, weight, p.aligned, p.K, sums);
    return;
  }
  const XRow one[1] = {x[0]};
  float sum[1][kColumns];
  row_products(one, weight, p.aligned, p.K, sum);
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = sum[0][c];
  }
}

// The first product of a tile's rows: a warp computes two columns of the gate and the corresponding
// two of up, and writes their activation. Blocks with neighbouring x compute neighbouring tiles,
// which share the expert's weights in the cache. Reads the weights of the chosen experts once
// (their bytes over the bandwidth are the floor for few tokens) and does 4 * R * I * H flops (at
// the rate of fp32 multiply-adds the floor for many).
template <typename XRows, typename WeightRows>
__global__ void __launch_bounds__(kThreads, 2)
    up_kernel(const __grid_constant__ RowsParams<XRows, WeightRows> params) {
  wait_for_inputs();
  const ProductParams& p = params.product;
  const ExpertTile tile = p.tiles[blockIdx.x];
  const int64_t i = (int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp) * 2;
  if (tile.num_rows == 0 || i >= p.N) return;
  const int lane = threadIdx.x % kWarp;
  decltype(params.x.row(0)) x[kTileRows];
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    x[r] = params.x.row(p.row_pair[tile.first_row + min(r, tile.num_rows - 1)] / p.A);
  }
  const int64_t second = i + 1 < p.N ? i + 1 : i;
  // Experts without a gate have no up projection: the columns of the gate are computed twice, and
  // the second sums are not used.
  const int64_t up = p.activation.form == ExpertForm::kSquaredRelu ? 0 : p.N;
  const int64_t rows[kColumns] = {i, second, up + i, up + second};
  decltype(params.weight.row(0)) weight[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) weight[c] = params.weight.row(rows[c], tile.expert);
  float sums[kTileRows][kColumns];
  tile_products(tile, x, weight, p, sums);
  if (p.bias != nullptr) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float bias = p.bias[tile.expert * (p.N + up) + rows[c]];
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) sums[r][c] += bias;
    }
  }
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (lane != 2 * r + c || r >= tile.num_rows || i + c >= p.N) continue;
      p.y.store_one(tile.first_row + r, i + c, activated(sums[r][c], sums[r][2 + c], p.activation));
    }
  }
}

// The second product of a tile's rows: a warp computes four columns. Reads and computes half as
// much as the first product.
template <typename XRows, typename WeightRows>
__global__ void __launch_bounds__(kThreads, 2)
    down_kernel(const __grid_constant__ RowsParams<XRows, WeightRows> params) {
  wait_for_inputs();
  const ProductParams& p = params.product;
  const ExpertTile tile = p.tiles[blockIdx.x];
  const int64_t n = (int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarp) * kColumns;
  if (tile.num_rows == 0 || n >= p.N) return;
  const int lane = threadIdx.x % kWarp;
  decltype(params.x.row(0)) x[kTileRows];
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    x[r] = params.x.row(tile.first_row + min(r, tile.num_rows - 1));
  }
  decltype(params.weight.row(0)) weight[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    weight[c] = params.weight.row(min(n + c, p.N - 1), tile.expert);
  }
  float sums[kTileRows][kColumns];
  tile_products(tile, x, weight, p, sums);
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (lane != r * kColumns + c || r >= tile.num_rows || n + c >= p.N) continue;
      const float bias = p.bias != nullptr ? p.bias[tile.expert * p.N + n + c] : 0.0f;
      p.y.store_one(p.row_pair[tile.first_row + r], n + c, sums[r][c] + bias);
    }
  }
}

inline dim3 grid_of_tiles(int64_t num_tiles, int64_t columns, int64_t columns_per_warp) {
  return dim3(static_cast<unsigned>(num_tiles),
              static_cast<unsigned>(ceil_div(columns, kWarps * columns_per_warp)));
}

template <typename XRows, typename WeightRows>
Status launch_up(CudaContext& context, const ProductParams& product, const XRows& x,
                 const WeightRows& weight, int64_t num_tiles) {
  return launch(context, "moe_up", up_kernel<XRows, WeightRows>,
                grid_of_tiles(num_tiles, product.N, 2), kThreads,
                RowsParams<XRows, WeightRows>{product, x, weight});
}

template <typename XRows, typename WeightRows>
Status launch_down(CudaContext& context, const ProductParams& product, const XRows& x,
                   const WeightRows& weight, int64_t num_tiles) {
  return launch(context, "moe_down", down_kernel<XRows, WeightRows>,
                grid_of_tiles(num_tiles, product.N, kColumns), kThreads,
                RowsParams<XRows, WeightRows>{product, x, weight});
}

}  // namespace heddle::ops::expert_rows
