// SPDX-License-Identifier: Apache-2.0
// FloatOctet: eight activations as pairs of 8-bit floats, for products with weights of 8-bit
// floats. E4M3 weights are then multiplied without being converted.
//
// The neighbouring bf16 numbers in the octets of kLanes lanes share a factor that brings the
// largest magnitude to between 2^7 and 2^8. Each number is stored as the sum of two E4M3 numbers:
// itself rounded to E4M3, and the rest. Each of the two holds four of the eight mantissa bits of
// bf16, so that the sum is exact for numbers down to 2^-9 of the largest, and below that off by at
// most 2^-17 of the largest.
#pragma once

#include <cstdint>

#include <cuda_fp8.h>

#include "ops/cuda/rows.cuh"

namespace heddle::ops {

// Eight numbers x = factor * (high + low), as bytes in the order of their columns.
struct FloatOctet {
  uint2 high, low;
  float factor;  // shared by kLanes neighbouring lanes; NaN if one of their numbers is not finite

  // All lanes of a warp must call it.
  template <int kLanes>
  static __device__ FloatOctet of(const uint4& octet) {
    const uint32_t words[4] = {octet.x, octet.y, octet.z, octet.w};
    uint32_t pair = 0;
#pragma unroll
    for (const uint32_t word : words) pair = __vmaxu2(pair, word & 0x7fff7fffu);
    uint32_t largest = max(pair & 0xffffu, pair >> 16);
#pragma unroll
    for (int lane = 1; lane < kLanes; lane *= 2) {
      largest = max(largest, __shfl_xor_sync(~0u, largest, lane));
    }
    constexpr uint32_t kBias = 127, kMantissaBits = 23, kExponent = 7;
    constexpr uint32_t kLeast = 8;  // smallest exponent for which the factor is a normal number
    const uint32_t exponent = max(largest >> 7, kLeast);
    const float to_bytes = __uint_as_float((kBias + kExponent + kBias - exponent) << kMantissaBits);
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 numbers = unpacked(words[i], ScalarTag<CudaBf16>());
      numbers.x *= to_bytes;
      numbers.y *= to_bytes;
      const __nv_fp8x2_storage_t rounded =
          __nv_cvt_float2_to_fp8x2(numbers, __NV_SATFINITE, __NV_E4M3);
      const float2 taken = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(rounded, __NV_E4M3)));
      high[i] = rounded;
      low[i] = __nv_cvt_float2_to_fp8x2(make_float2(numbers.x - taken.x, numbers.y - taken.y),
                                        __NV_SATFINITE, __NV_E4M3);
    }
    return {.high = make_uint2(high[0] | high[1] << 16, high[2] | high[3] << 16),
            .low = make_uint2(low[0] | low[1] << 16, low[2] | low[3] << 16),
            .factor = largest >> 7 == 255
                          ? __uint_as_float(0x7fc00000u)
                          : __uint_as_float((exponent - kExponent) << kMantissaBits)};
  }
};

}  // namespace heddle::ops
