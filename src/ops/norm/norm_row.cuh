// SPDX-License-Identifier: Apache-2.0
// Device code that normalises a row: scale = 1 / sqrt(sum of squares / H + epsilon), y = x scale
// weight. A thread has octets of a row; block_sum() (cuda/reduce.cuh) joins the sums of squares.
// Used by the op (rms_norm_cuda.cu) and by kernels that normalise a row as the input of a product
// (gemm/skinny_product.cu): the same operations in the same order give the same bits.
#pragma once

#include "ops/cuda/rows.cuh"

namespace heddle::ops {

// values += residual, rounded to the dtype in which the residual is stored.
template <typename Scalar>
__device__ inline void add_to_residual(const float (&residual)[kOctet], float (&values)[kOctet]) {
#pragma unroll
  for (int j = 0; j < kOctet; ++j) values[j] = as_float(rounded<Scalar>(residual[j] + values[j]));
}

// Adds the squares of an octet to a thread's sum. A thread adds its octets in ascending order;
// block_sum() joins the threads.
__device__ inline void add_squares(const float (&values)[kOctet], float& sum) {
#pragma unroll
  for (int j = 0; j < kOctet; ++j) sum = fmaf(values[j], values[j], sum);
}

__device__ inline float norm_scale(float sum_of_squares, int64_t H, float epsilon) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(H) + epsilon);
}

__device__ inline void normalise(const float (&values)[kOctet], float scale,
                                 const float (&weights)[kOctet], float (&normed)[kOctet]) {
#pragma unroll
  for (int j = 0; j < kOctet; ++j) normed[j] = values[j] * scale * weights[j];
}

}  // namespace heddle::ops
