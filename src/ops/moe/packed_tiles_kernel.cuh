// SPDX-License-Identifier: Apache-2.0
// The kernel of packed_tiles.cuh, which describes formula, division of work and cost. Compiled for
// each code in packed_tiles_{e4m3,e2m1,u8,u4}.cu.
#pragma once

#include <algorithm>

#include "ops/gemm/skinny_kernel.cuh"
#include "ops/moe/packed_tiles.cuh"

namespace heddle::ops::packed_tiles {

using expert_rows::ProductParams;
using skinny::Batch, skinny::Codes, skinny::kTile, skinny::WeightStream;

inline constexpr int kGroups = 2;                  // groups of warps per block
inline constexpr int kBlocks = 2;                  // blocks per multiprocessor
inline constexpr int kGateColumns = 4;             // gate columns per tile of the up product
inline constexpr int64_t kBlockBytes = 512 << 10;  // approximate code bytes per block

struct Params {
  ProductParams product;
  PackedSource weight;
  const CudaBf16* x;
  int64_t x_stride;
  int num_tiles;  // number of tiles of columns
  int row_octets;
};

// The product of a tile of rows, with the members that WeightStream and WarpSums need.
template <bool kUp>
struct TileProduct {
  const Params& params;
  ExpertTile tile;
  int K, T, row_octets, num_tiles;

  __device__ TileProduct(const Params& all, const ExpertTile& own)
      : params(all),
        tile(own),
        K(static_cast<int>(all.product.K)),
        T(own.num_rows),
        row_octets(all.row_octets),
        num_tiles(all.num_tiles) {}

  [[nodiscard]] const __device__ PackedSource& source_of(int /*tile*/) const {
    return params.weight;
  }

  [[nodiscard]] __device__ int row_of(int of_columns, int column) const {
    const int N = static_cast<int>(params.product.N);
    if constexpr (kUp) {
      const int i = min(of_columns * kGateColumns + column % kGateColumns, N - 1);
      return tile.expert * 2 * N + (column < kGateColumns ? 0 : N) + i;
    } else {
      return tile.expert * N + min(of_columns * kTile + column, N - 1);
    }
  }

  // Row t of x.
  [[nodiscard]] const __device__ uint4* row_of_x(int t) const {
    const ProductParams& p = params.product;
    const int64_t row = kUp ? p.row_pair[tile.first_row + t] / p.A : tile.first_row + t;
    return reinterpret_cast<const uint4*>(params.x + row * params.x_stride);
  }
};

// An element that a thread stores. In the first product it is computed from a column of the gate
// and the corresponding column of up.
template <bool kUp>
class Element {
 public:
  __device__ Element(const TileProduct<kUp>& product, int t, int tile, int column)
      : p_(&product.params.product), expert_(product.tile.expert) {
    n_ = tile * (kUp ? kGateColumns : kTile) + column;
    real_ =
        tile < product.num_tiles && t < product.T && n_ < p_->N && (!kUp || column < kGateColumns);
    if (!real_) return;
    row_ = product.tile.first_row + t;
    if constexpr (!kUp) row_ = p_->row_pair[row_];
  }

  [[nodiscard]] __device__ bool real() const { return real_; }

  template <typename SumOf>
  __device__ void store(const SumOf& sum_of) const {
    const int64_t N = p_->N;
    float sum = sum_of(0);
    if constexpr (kUp) {
      float up = sum_of(kGateColumns);
      if (p_->bias != nullptr) {
        sum += p_->bias[expert_ * 2 * N + n_];
        up += p_->bias[expert_ * 2 * N + N + n_];
      }
      sum = activated(sum, up, p_->activation);
    } else if (p_->bias != nullptr) {
      sum += p_->bias[expert_ * N + n_];
    }
    p_->y.store_one(row_, n_, sum);
  }

 private:
  const ProductParams* p_;
  int expert_;
  int n_;
  int row_ = 0;
  bool real_;
};

// Four warps that compute tiles of columns together.
template <typename Weights>
struct Group {
  static constexpr int kThreads = Weights::kTileWarps * kWarp;

  int group = static_cast<int>(threadIdx.x) / kThreads;
  int thread = static_cast<int>(threadIdx.x) % kThreads;

  __device__ void synchronize() const {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kThreads) : "memory");
  }
};

template <typename Weights>
inline constexpr int kThreads = kGroups * Group<Weights>::kThreads;

template <bool kUp, int kHalves, bool kWhole, typename Weights>
__device__ inline void multiply_tile(
    const TileProduct<kUp>& product, uint4* x,
    float (&partial_sums)[2][Weights::kTileWarps][kTileRows][kTile]) {
  const Group<Weights> own;
  const int first = static_cast<int>(blockIdx.y) + own.group * static_cast<int>(gridDim.y);
  const int stride = kGroups * static_cast<int>(gridDim.y);
  WeightStream<kWhole, Weights, TileProduct<kUp>> weights(product, first, stride,
                                                          own.thread / kWarp);
  Batch<Weights> batches[skinny::depth_of<kHalves, Weights>()];
#pragma unroll
  for (Batch<Weights>& batch : batches) weights.load(batch);
  const Element<kUp> element(product, own.thread / kTile, first, own.thread % kTile);
  const int octets = product.K / kOctet;
  for (int i = static_cast<int>(threadIdx.x); i / kWarp * kWarp < Weights::padded_octets(product.K);
       i += kThreads<Weights>) {
#pragma unroll 4
    for (int t = 0; t < product.T; ++t) {
      const uint4 octet = i < octets ? product.row_of_x(t)[i] : uint4{};
      skinny::store_arranged<Weights>(product, octet, t, i, x);
    }
  }
  __syncthreads();
  if (first >= product.num_tiles) return;
  auto& sums = reinterpret_cast<float(&)[2][Weights::kTileWarps][kHalves * 8][kTile]>(partial_sums);
  skinny::multiply_tiles<kHalves, kWhole>(product, own, x, first, stride, weights, batches, sums,
                                          element);
}

template <bool kUp, bool kWhole, typename Weights>
__global__ void __launch_bounds__(kThreads<Weights>, kBlocks)
    tiles_kernel(const __grid_constant__ Params p) {
  extern __shared__ uint4 x[];  // rows of x: [kTileRows, row_octets]
  __shared__ float partial_sums[kGroups][2][Weights::kTileWarps][kTileRows][kTile];
  wait_for_inputs();
  const TileProduct<kUp> product(p, p.product.tiles[blockIdx.x]);
  if (product.T == 0) return;
  auto& own = partial_sums[Group<Weights>().group];
  if (product.T <= 8) {
    multiply_tile<kUp, 1, kWhole, Weights>(product, x, own);
  } else {
    multiply_tile<kUp, 2, kWhole, Weights>(product, x, own);
  }
}

// Bytes of shared memory for kTileRows rows of x.
inline int64_t shared_bytes(int64_t K) { return skinny::most_bytes_of_rows(kTileRows, K, true); }

template <bool kUp, bool kWhole, typename Weights>
Status launch_form(CudaContext& context, Params params, int64_t num_tiles) {
  params.row_octets =
      static_cast<int>(Weights::padded_octets(params.product.K)) + Weights::kPadding;
  const auto kernel = tiles_kernel<kUp, kWhole, Weights>;
  const auto bytes = static_cast<size_t>(shared_bytes(params.product.K));
  HEDDLE_RETURN_IF_ERROR(
      allow_shared(kernel, static_cast<size_t>(skinny::most_bytes_of_x(context))));
  const int64_t codes = (kUp ? 2 : 1) * params.product.N * params.weight.code_bytes;
  const int64_t blocks =
      std::clamp<int64_t>(codes / kBlockBytes, 1, ceil_div(params.num_tiles, kGroups));
  return launch(context, kUp ? "moe_up packed" : "moe_down packed", kernel,
                dim3(static_cast<unsigned>(num_tiles), static_cast<unsigned>(blocks)),
                kThreads<Weights>, params, bytes);
}

template <bool kUp, typename Weights>
Status launch_with(CudaContext& context, const Params& params, int64_t num_tiles) {
  constexpr int kStep = Weights::kTileWarps * Weights::kUnits * skinny::kUnit;
  return params.product.K % kStep == 0
             ? launch_form<kUp, true, Weights>(context, params, num_tiles)
             : launch_form<kUp, false, Weights>(context, params, num_tiles);
}

template <typename Weights>
Status launch_columns(CudaContext& context, bool up, const Params& params, int64_t num_tiles) {
  return up ? launch_with<true, Weights>(context, params, num_tiles)
            : launch_with<false, Weights>(context, params, num_tiles);
}

Status launch_e4m3(CudaContext& context, bool up, const Params& params, int64_t num_tiles);
Status launch_e2m1(CudaContext& context, bool up, const Params& params, int64_t num_tiles);
Status launch_u8(CudaContext& context, bool up, const Params& params, int64_t num_tiles);
Status launch_u4(CudaContext& context, bool up, const Params& params, int64_t num_tiles);

}  // namespace heddle::ops::packed_tiles
