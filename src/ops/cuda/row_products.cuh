// SPDX-License-Identifier: Apache-2.0
// row_products(): the one order of sums in which CUDA multiplies rows of x by rows of weights,
// wherever a row's bits may depend on neither the number of rows nor their neighbours: a warp adds
// up x[r] . weight[c] for a few rows and columns at once; lane l owns the elements k with
// k / 8 % 32 = l and adds their products in ascending k by fused multiply-adds, and warp_sum()
// joins the lanes. So an element's sum depends on K alone: not on the tile it is computed in, nor
// on alignment, nor on the form that holds the same numbers.
#pragma once

#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"

namespace heddle::ops {

// A plain matrix [N, K], or [E, N, K], as kernels of row products take x and weights;
// packed_rows.cuh has others.
template <typename Scalar>
struct PlainRows {
  const Scalar* data = nullptr;
  int64_t stride = 0;  // distance between rows
  int64_t expert_stride = 0;

  [[nodiscard]] const __device__ Scalar* row(int64_t n, int64_t expert = 0) const {
    return data + expert * expert_stride + n * stride;
  }
};

// Calls body(PlainRows) with the type of the dtype.
template <typename Body>
auto with_plain_rows(const TensorView& matrix, int64_t stride, int64_t expert_stride,
                     const Body& body) {
  return with_scalar(matrix.dtype, [&](auto tag) {
    using Scalar = typename decltype(tag)::type;
    return body(PlainRows<Scalar>{matrix.as<Scalar>(), stride, expert_stride});
  });
}

// Every lane gets all sums. All pointers are valid: a tile at the edge repeats a row and drops the
// sum, because a branch for each row would hold back the loads behind it. `aligned`: all rows begin
// on 16 bytes. Flops: 2 * K a sum, after a conversion of every 16-bit number loaded; a tile of 4 x
// 4 does 128 multiply-adds for 8 loads of 16 bytes.
template <typename X, typename Weight, int kRows, int kColumns>
__device__ inline void row_products(const X* const (&x)[kRows],
                                    const Weight* const (&weight)[kColumns], bool aligned,
                                    int64_t K, float (&sums)[kRows][kColumns]) {
  constexpr int64_t kStep = kOctet * kWarp;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = 0.0f;
  }
  const auto add = [&](const float(&from_x)[kRows][kOctet], const float(&w)[kColumns][kOctet]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int i = 0; i < kOctet; ++i) sums[r][c] = fmaf(from_x[r][i], w[c][i], sums[r][c]);
      }
    }
  };
  int64_t k = static_cast<int64_t>(threadIdx.x % kWarp) * kOctet;
  float from_x[kRows][kOctet];
  float w[kColumns][kOctet];
  if (aligned) {
#pragma unroll(kRows == 1 ? 4 : 1)
    for (; k + kOctet <= K; k += kStep) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) load_octet(weight[c] + k, w[c]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) load_octet(x[r] + k, from_x[r]);
      add(from_x, w);
    }
  }
  for (; k < K; k += kStep) {  // the end of the rows, or rows that are not aligned
#pragma unroll
    for (int c = 0; c < kColumns; ++c) load_elements(weight[c] + k, K - k, w[c]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) load_elements(x[r] + k, K - k, from_x[r]);
    add(from_x, w);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = warp_sum(sums[r][c]);
  }
}

}  // namespace heddle::ops
