// SPDX-License-Identifier: Apache-2.0
// The weight of a token, exp((logit - max) / temperature), as an integer multiple of 2^-44: sums of
// weights are exact, so that any order of summation gives the same bits. Every operation is rounded
// by itself and is written only here, so that kernels compute the same bits as the CPU.
//
// A token with less than 2^-45 of the best token's probability weighs nothing. The weights of 2^20
// - 1 tokens, the largest vocabulary that a checkpoint may have, fit into an unsigned 64-bit sum.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/compiler.h"

namespace heddle::ops {

inline constexpr int kWeightBits = 44;
inline constexpr uint64_t kUnitWeight = uint64_t{1} << kWeightBits;  // weight of the best token

// a * b, rounded to float; never contracted with an addition to a fused multiply-add.
[[nodiscard]] HEDDLE_HOST_DEVICE inline float rounded_product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;  // -ffp-contract=off prevents a fused multiply-add
#endif
}

[[nodiscard]] HEDDLE_HOST_DEVICE inline uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

[[nodiscard]] HEDDLE_HOST_DEVICE inline float float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// exp(z) for z <= 0; below -86 the value at -86. Relative error below 3e-7, well below that of a
// softmax in fp32. Coefficients from Cephes' expf (Moshier).
[[nodiscard]] HEDDLE_HOST_DEVICE inline float exp_of_negative(float z) {
  constexpr float kLowest = -86.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr uint32_t kRoundBits = 0x4b400000;
  const float clamped = z > kLowest ? z : kLowest;
  const float shifted = rounded_product(clamped, 1.44269504088896341f) + kRound;
  const float n = shifted - kRound;
  const float r =
      (clamped - rounded_product(n, 0.693359375f)) - rounded_product(n, -2.12194440e-4f);
  float p = 1.9875691500e-4f;
  p = rounded_product(p, r) + 1.3981999507e-3f;
  p = rounded_product(p, r) + 8.3334519073e-3f;
  p = rounded_product(p, r) + 4.1665795894e-2f;
  p = rounded_product(p, r) + 1.6666665459e-1f;
  p = rounded_product(p, r) + 5.0000001201e-1f;
  p = rounded_product(p, rounded_product(r, r)) + r + 1.0f;
  return float_of(bits_of(p) + ((bits_of(shifted) - kRoundBits) << 23));
}

// Converts an exponential to units of 2^-44, rounded to nearest, ties to even. Scaling by a power
// of two is exact.
[[nodiscard]] HEDDLE_HOST_DEVICE inline uint64_t fixed_weight(float exponential) {
  const float scaled = rounded_product(exponential, static_cast<float>(kUnitWeight));
#ifdef __CUDA_ARCH__
  return __float2ull_rn(scaled);
#else
  return static_cast<uint64_t>(std::llrint(scaled));
#endif
}

// Sums at most 256 exponentials, each rounded as by fixed_weight(), without 64-bit arithmetic.
// Adding kCoarse leaves the nearest multiple of 2^-21 in the last bits of the float; adding kFine
// to the rest leaves the multiple of 2^-44, from -2^22 to 2^22 of them. Rounding twice to nearest
// even equals rounding once, because the first multiple is an even number of the second.
struct ShortWeightSum {
  HEDDLE_HOST_DEVICE void add(float exponential) {
    constexpr float kCoarse = 6.0f;
    constexpr float kFine = 0x1.8p-21f;
    constexpr uint32_t kCoarseBits = 0x40c00000;
    constexpr uint32_t kFineBits = 0x35400000;
    const float shifted = exponential + kCoarse;
    const float rest = exponential - (shifted - kCoarse);
    coarse += bits_of(shifted) - kCoarseBits;
    fine += bits_of(rest + kFine) - kFineBits;
  }

  HEDDLE_HOST_DEVICE void join(const ShortWeightSum& other) {
    coarse += other.coarse;
    fine += other.fine;
  }

  [[nodiscard]] HEDDLE_HOST_DEVICE uint64_t total() const {
    uint64_t high = coarse;
    int64_t low = static_cast<int32_t>(fine);
#ifndef __CUDA_ARCH__
    // Hides the origin of the numbers from the compiler. Without it g++ 13.3 at -O2 computes wrong
    // sums of whole tiles (sample_rows_cpu.cpp); at -O1 or with -fno-tree-vrp it computes the right
    // ones.
    asm volatile("" : "+r"(high), "+r"(low));
#endif
    return (high << 23) + static_cast<uint64_t>(low);
  }

  uint32_t coarse = 0;
  uint32_t fine = 0;  // signed, modulo 2^32
};

[[nodiscard]] HEDDLE_HOST_DEVICE inline uint64_t token_weight(float logit, float max,
                                                              float inverse_temperature) {
  return fixed_weight(exp_of_negative(rounded_product(logit - max, inverse_temperature)));
}

// floor(a * b / 2^64).
[[nodiscard]] HEDDLE_HOST_DEVICE inline uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// floor(share * mass), exactly for shares in [2^-40, 1).
[[nodiscard]] HEDDLE_HOST_DEVICE inline uint64_t share_of_mass(float share, uint64_t mass) {
  return high_product(static_cast<uint64_t>(rounded_product(share, 0x1p64f)), mass);
}

}  // namespace heddle::ops
