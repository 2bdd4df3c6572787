// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <string>

#include "core/check.h"

namespace heddle {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBf16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kF8E4M3:
      return "float8_e4m3";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
    case DType::kI4:
      return "int4";
    case DType::kPacked:
      return "quantised";
  }
  return "unknown";
}

int64_t bits_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 32;
    case DType::kBf16:
    case DType::kF16:
      return 16;
    case DType::kF8E4M3:
    case DType::kI8:
    case DType::kU8:
      return 8;
    case DType::kI64:
      return 64;
    case DType::kI4:
      return 4;
    case DType::kPacked:
      break;
  }
  HEDDLE_CHECK(false && "a dtype whose elements have a size");
}

int64_t bytes_of(DType dtype, int64_t count) { return (count * bits_of(dtype) + 7) / 8; }

Result<DType> parse_dtype(std::string_view name) {
  if (name == "float32" || name == "fp32" || name == "f32" || name == "float") return DType::kF32;
  if (name == "bfloat16" || name == "bf16") return DType::kBf16;
  if (name == "float16" || name == "half" || name == "fp16" || name == "f16") return DType::kF16;
  return invalid_argument("dtype \"" + std::string(name) +
                          "\" is not known; use float32, bfloat16 or float16");
}

float to_float(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
  // Zero and subnormals: the value is mantissa * 2^-24, which is exact in float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

F16 to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};  // NaN stays NaN
  if (magnitude >= 0x477ff000u)
    return {static_cast<uint16_t>(sign | 0x7c00u)};  // too large: rounds to infinity
  if (magnitude < 0x38800000u) {
    // The result is subnormal: adding 0.5 aligns the mantissa so that the FPU rounds to nearest
    // even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace heddle
