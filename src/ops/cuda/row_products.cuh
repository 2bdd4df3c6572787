// SPDX-License-Identifier: Apache-2.0
// row_products(): the order of sums in which CUDA kernels multiply rows of x by rows of weights
// wherever a row's bits must not depend on the other rows or on their number. A warp sums x[r] .
// weight[c] for a few rows and columns at once: lane l adds the products of the elements k with k /
// 8 % 32 = l in ascending order by fused multiply-adds, and warp_sum() joins the lanes. An
// element's sum therefore depends on K alone: not on the tile that it is computed in, the
// alignment, or the format in which the same numbers are stored.
#pragma once

#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"

namespace heddle::ops {

// A plain matrix [N, K] or [E, N, K]: x or weights as the kernels of row products use them.
// packed_rows.cuh has quantised ones.
template <typename Scalar>
struct PlainRows {
  const Scalar* data = nullptr;
  int64_t stride = 0;  // elements from one row to the next
  int64_t expert_stride = 0;

  [[nodiscard]] const __device__ Scalar* row(int64_t n, int64_t expert = 0) const {
    return data + expert * expert_stride + n * stride;
  }
};

// Calls body(PlainRows) with the type that corresponds to the dtype.
template <typename Body>
auto with_plain_rows(const TensorView& matrix, int64_t stride, int64_t expert_stride,
                     const Body& body) {
  return with_scalar(matrix.dtype, [&](auto tag) {
    using Scalar = typename decltype(tag)::type;
    return body(PlainRows<Scalar>{matrix.as<Scalar>(), stride, expert_stride});
  });
}

// Every lane gets all sums. All pointers must be valid: a tile at the edge repeats a row and
// discards its sum, because a branch for each row would delay the loads after it. `aligned` means
// that all rows are 16-byte aligned. Flops: 2 * K a sum, after a conversion of every 16-bit number
// loaded; a tile of 4 x 4 does 128 multiply-adds for 8 loads of 16 bytes.
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
  for (; k < K; k += kStep) {  // the ends of the rows, or all of rows that are not aligned
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
