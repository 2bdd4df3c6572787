// SPDX-License-Identifier: Apache-2.0
// The 8- and 4-bit floating-point formats: the values of their codes and the conversion of floats
// to codes. These scalar functions are the definition; kernels are tested against them.
//
//   E4M3 (OCP, "fn"): sign, 4 exponent bits with bias 7, 3 mantissa bits. Largest 448, no
//   infinities, NaN is 0x7f and 0xff. The fnuz variants of other hardware differ by a factor of 2.
//   E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
//   E8M0: a power of two, 2^(code - 127); 255 is NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/compiler.h"
#include "core/dtype.h"

namespace heddle::quant {

inline constexpr float kE4M3Max = 448.0f;

// The value of an E4M3 code; exact.
[[nodiscard]] inline float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = static_cast<uint32_t>(code & 0x7fu);
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  // Exponent and mantissa moved to a float's position give a value 2^120 too small, also for
  // subnormals.
  return std::bit_cast<float>(
      sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 20) * 0x1p120f));
}

// Rounds to nearest, ties to even. Values beyond 448 become 448, as quantisers need it; NaN stays
// NaN.
[[nodiscard]] uint8_t float_to_e4m3(float value);

// An E4M3 number as it is stored in memory.
struct E4M3 {
  uint8_t bits = 0;
};

[[nodiscard]] inline float to_float(E4M3 value) { return e4m3_to_float(value.bits); }

[[nodiscard]] inline float e2m1_to_float(uint8_t code) {
  constexpr float kValues[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float value = kValues[code & 7u];
  return (code & 8u) != 0 ? -value : value;
}

// Rounds to nearest, ties to even; values beyond 6 and NaN become 6.
[[nodiscard]] HEDDLE_HOST_DEVICE inline uint8_t float_to_e2m1(float value) {
  const float magnitude = value < 0 ? -value : value;
  const int code = magnitude <= 0.25f   ? 0
                   : magnitude < 0.75f  ? 1
                   : magnitude <= 1.25f ? 2
                   : magnitude < 1.75f  ? 3
                   : magnitude <= 2.5f  ? 4
                   : magnitude < 3.5f   ? 5
                   : magnitude <= 5.0f  ? 6
                                        : 7;
  return static_cast<uint8_t>(value < 0 ? code | 8 : code);
}

// Reads an fp16 number at an address of any alignment.
[[nodiscard]] inline float half_at(const std::byte* bytes) {
  F16 value;
  std::memcpy(&value, bytes, sizeof(value));
  return to_float(value);
}

// The value of an E8M0 code; exact. Code 0 is 2^-127, a subnormal float.
[[nodiscard]] inline float e8m0_to_float(uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

}  // namespace heddle::quant
