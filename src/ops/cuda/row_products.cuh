// SPDX-License-Identifier: Apache-2.0
// row_products(): the one order of sums in which CUDA multiplies rows of x by rows of weights,
// wherever a row's bits may depend on neither the number of rows nor their neighbours: a warp adds
// up x[r] . weight[c] for a few rows and columns at once; lane l owns the elements k with
// k / 8 % 32 = l and adds their products in ascending k by fused multiply-adds, and warp_sum()
// joins the lanes. So an element's sum depends on K alone: not on the tile it is computed in, nor
// on alignment, nor on the dtype that holds the same numbers.
#pragma once

#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"

namespace heddle::ops {

// Pointers of `num` rows; the others are never read.
template <typename Scalar, int kMost>
struct RowPointers {
  const Scalar* at[kMost];
  int num;
};

// Every lane gets all sums; those of rows beyond `x.num` are 0, those of columns beyond it
// undefined. `aligned`: all rows begin on 16 bytes. Flops: 2 * K a sum, after two conversions for
// every 16-bit number loaded; a tile of 4 x 4 does 128 multiply-adds for 8 loads of 16 bytes.
template <typename X, typename Weight, int kRows, int kColumns>
__device__ inline void row_products(const RowPointers<X, kRows>& x,
                                    const RowPointers<Weight, kColumns>& weight, bool aligned,
                                    int64_t K, float (&sums)[kRows][kColumns]) {
  constexpr int64_t kStep = kOctet * kWarp;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = 0.0f;
  }
  const auto add = [&](const float(&from_x)[kOctet], const float(&w)[kColumns][kOctet], int r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) sums[r][c] = fmaf(from_x[i], w[c][i], sums[r][c]);
    }
  };
  int64_t k = static_cast<int64_t>(threadIdx.x % kWarp) * kOctet;
  if (aligned) {
#pragma unroll(kRows == 1 ? 4 : 2)
    for (; k + kOctet <= K; k += kStep) {
      float w[kColumns][kOctet];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        load_octet(weight.at[c < weight.num ? c : 0] + k, w[c]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= x.num) break;
        float from_x[kOctet];
        load_octet(x.at[r] + k, from_x);
        add(from_x, w, r);
      }
    }
  }
  for (; k < K; k += kStep) {  // the end of the rows, or rows that are not aligned
    float w[kColumns][kOctet];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      load_elements(weight.at[c < weight.num ? c : 0] + k, K - k, w[c]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= x.num) break;
      float from_x[kOctet];
      load_elements(x.at[r] + k, K - k, from_x);
      add(from_x, w, r);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= x.num) break;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = warp_sum(sums[r][c]);
  }
}

}  // namespace heddle::ops
