// SPDX-License-Identifier: Apache-2.0
// The number formats of tensors, and scalar conversions between the 16-bit formats and float.
//
// Vectorised conversions are in the kernels that use them. The functions here are the definition
// (round to nearest, ties to even) against which these kernels are tested.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include <heddle/status.h>

namespace heddle {

enum class DType : uint8_t {
  kF32,
  kBf16,
  kF16,
  kF8E4M3,  // OCP e4m3fn: no infinities; NaN is 0x7f and 0xff
  kI64,
  kI32,
  kI8,
  kU8,
  kI4,      // 4-bit integers, two per byte, the low nibble first
  kPacked,  // a quantised weight; the view's `packed` describes its layout
};

[[nodiscard]] std::string_view to_string(DType dtype);  // the name of the dtype: "float32",
                                                        // "bfloat16", ...

// Bits of one element: 4 for kI4. Aborts for kPacked, whose rows have different sizes
// (quant/packed_rows.h).
[[nodiscard]] int64_t bits_of(DType dtype);

// Bytes of `count` elements, rounded up to whole bytes. `count` must come from a validated shape,
// so that the product cannot overflow.
[[nodiscard]] int64_t bytes_of(DType dtype, int64_t count);

[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16 ||
         dtype == DType::kF8E4M3;
}

// Parses "float32", "fp32", "bfloat16", "bf16", "float16", "half" and "fp16". Error:
// kInvalidArgument, with a list of these names.
Result<DType> parse_dtype(std::string_view name);

// bfloat16: the upper 16 bits of a float.
struct Bf16 {
  uint16_t bits = 0;
};

// The 16-bit format of IEEE 754 (binary16).
struct F16 {
  uint16_t bits = 0;
};

[[nodiscard]] inline float to_float(float value) { return value; }

[[nodiscard]] inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

[[nodiscard]] float to_float(F16 value);

[[nodiscard]] inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // NaN stays NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

[[nodiscard]] F16 to_f16(float value);

}  // namespace heddle
