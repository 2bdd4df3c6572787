// SPDX-License-Identifier: Apache-2.0
// IntegerOctet: eight activations as integers, for products with integer codes of weights. Bytes
// are multiplied and added exactly, and codes are not converted.
//
// The 64 or 128 neighbouring bf16 numbers in the octets of 8 or 16 lanes share a factor that brings
// the largest magnitude to between 2^14 and 2^15; then they are rounded to integers. The error is
// at most 2^-15 of the largest number, and numbers down to 2^-7 of the largest keep all bits of
// bf16. An integer is stored as 256 times a high byte plus a low byte, both signed.
#pragma once

#include <cstdint>

#include "ops/cuda/rows.cuh"

namespace heddle::ops {

// Returns byte number `byte` of each of four words, as one word.
__device__ inline uint32_t gather_bytes(const uint32_t* words, uint32_t byte) {
  const uint32_t selector = 0x0040u + 0x0011u * byte;
  return __byte_perm(__byte_perm(words[0], words[1], selector),
                     __byte_perm(words[2], words[3], selector), 0x5410);
}

// Adds the products of four unsigned and four signed bytes to `sum`.
__device__ inline int32_t add_byte_products(uint32_t codes, uint32_t bytes, int32_t sum) {
  int32_t result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(codes), "r"(bytes), "r"(sum));
  return result;
}

// Eight numbers x = factor * (256 * high + low), as bytes in the order of their columns.
struct IntegerOctet {
  uint2 high, low;
  float factor;  // shared by kLanes neighbouring lanes; NaN if one of their numbers is not finite
  int32_t sum;   // sum of the octet's integers

  // All lanes of a warp must call it.
  template <int kLanes>
  static __device__ IntegerOctet of(const uint4& octet) {
    constexpr uint32_t kAll = ~0u;
    const uint32_t words[4] = {octet.x, octet.y, octet.z, octet.w};
    uint32_t pair = 0;
#pragma unroll
    for (const uint32_t word : words) pair = __vmaxu2(pair, word & 0x7fff7fffu);
    uint32_t largest = max(pair & 0xffffu, pair >> 16);
#pragma unroll
    for (int lane = 1; lane < kLanes; lane *= 2) {
      largest = max(largest, __shfl_xor_sync(kAll, largest, lane));
    }
    constexpr uint32_t kBias = 127, kMantissaBits = 23;
    constexpr uint32_t kLeast = 15;  // smallest exponent for which the factor is a normal number
    const uint32_t exponent = max(largest >> 7, kLeast);
    const float to_integer = __uint_as_float((kBias + 14 + kBias - exponent) << kMantissaBits);
    constexpr float kOnes = 0x1.8p23f;  // floats near it have a last mantissa bit that is worth 1
    // Largest integer that two such bytes can hold; 32,640 is reduced to it.
    constexpr int32_t kMost = 32639;
    uint32_t integers[kOctet];
    // The integers, raised by one high byte where the low byte is negative.
    uint32_t raised[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const uint32_t word = words[i / 2];
      const float x = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
      const int32_t v =
          min(__float_as_int(fmaf(x, to_integer, kOnes)), __float_as_int(kOnes) + kMost);
      integers[i] = static_cast<uint32_t>(v);
      raised[i] = static_cast<uint32_t>(v) + 128;
    }
    IntegerOctet to;
    to.low = make_uint2(gather_bytes(integers, 0), gather_bytes(integers + 4, 0));
    to.high = make_uint2(gather_bytes(raised, 1), gather_bytes(raised + 4, 1));
    constexpr uint32_t kOneEach = 0x01010101;
    const int32_t high =
        add_byte_products(kOneEach, to.high.x, add_byte_products(kOneEach, to.high.y, 0));
    to.sum =
        add_byte_products(kOneEach, to.low.x, add_byte_products(kOneEach, to.low.y, high * 256));
    to.factor = largest >> 7 == 255
                    ? __uint_as_float(0x7fc00000u)
                    : __uint_as_float((exponent + kBias - kBias - 14) << kMantissaBits);
    return to;
  }
};

}  // namespace heddle::ops
