// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the threads of a warp or block, in one fixed order: the same values in the
// same threads give the same bits.
// warp_sum(), warp_max(): all 32 lanes call; 5 shuffles. block_sum(): all threads of the block
// call; 10 shuffles, 2 barriers and 128 bytes of shared memory. Every caller gets the result.
#pragma once

namespace heddle::ops {

inline constexpr int kWarp = 32;

// Every lane gets the sum. Each step adds the lane at distance 16, 8, 4, 2, 1; addition commutes,
// so that both lanes of a pair get the same bits.
__device__ inline float warp_sum(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

__device__ inline float warp_max(float value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// Every thread gets the sum over a block of whole warps, at most 1024 threads; all of them must
// call it. `scratch` is 32 floats of shared memory, which may be reused when the call returns.
__device__ inline float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / kWarp ? scratch[lane] : 0.0f;
  value = warp_sum(value);
  __syncthreads();
  return value;
}

}  // namespace heddle::ops
