// SPDX-License-Identifier: Apache-2.0
#include "quant/small_floats.h"

#include <cmath>

namespace heddle::quant {

uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7fu;
  if (magnitude >= std::bit_cast<uint32_t>(kE4M3Max)) return sign | 0x7eu;
  if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {
    // A subnormal result is a multiple of 2^-9. The last bit of the sum is worth 2^-9, so the FPU
    // does the rounding.
    constexpr float kAligned = 0x1p14f;
    const float sum = std::bit_cast<float>(magnitude) + kAligned;
    return static_cast<uint8_t>(sign |
                                (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(kAligned)));
  }
  const uint32_t rounded = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - (120u << 3)));
}

}  // namespace heddle::quant
