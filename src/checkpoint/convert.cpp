// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/compiler.h"

namespace heddle::checkpoint {

namespace {

// The conversions of core/dtype.h without branches, so that the loops below become vector code.
// memcpy is the C++ idiom for an unaligned load.
template <typename Scalar>
Scalar load(const std::byte* bytes, int64_t index) {
  Scalar value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(Scalar)), sizeof(Scalar));
  return value;
}

template <typename Scalar>
void store(std::byte* bytes, int64_t index, Scalar value) {
  std::memcpy(bytes + index * static_cast<int64_t>(sizeof(Scalar)), &value, sizeof(Scalar));
}

// All bits set where `condition` holds, otherwise 0: selects without a branch.
inline uint32_t mask_of(bool condition) { return 0u - static_cast<uint32_t>(condition); }

inline uint32_t select(uint32_t mask, uint32_t yes, uint32_t no) {
  return (yes & mask) | (no & ~mask);
}

inline uint32_t float_bits_of_f16(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  // 2^112 moves the exponent from bias 15 to bias 127 and makes subnormals normal, exactly.
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  return sign | select(mask_of(magnitude >= 0x0f800000u), magnitude | 0x7f800000u, finite);
}

inline uint32_t bf16_bits_of_float(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return select(mask_of((bits & 0x7fffffffu) > 0x7f800000u), nan, rounded);
}

inline uint32_t f16_bits_of_float(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto shifted = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
  const uint32_t subnormal = shifted - 0x3f000000u;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  uint32_t result = select(mask_of(magnitude < 0x38800000u), subnormal, normal);
  result = select(mask_of(magnitude >= 0x477ff000u), 0x7c00u, result);
  result = select(mask_of(magnitude > 0x7f800000u), 0x7e00u, result);
  return sign | result;
}

HEDDLE_VECTOR_CLONES
void f16_to_f32(const std::byte* source, std::byte* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    store<uint32_t>(target, i, float_bits_of_f16(load<uint16_t>(source, i)));
  }
}

HEDDLE_VECTOR_CLONES
void bf16_to_f32(const std::byte* source, std::byte* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    store<uint32_t>(target, i, static_cast<uint32_t>(load<uint16_t>(source, i)) << 16);
  }
}

HEDDLE_VECTOR_CLONES
void f32_to_bf16(const std::byte* source, std::byte* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    store(target, i, static_cast<uint16_t>(bf16_bits_of_float(load<uint32_t>(source, i))));
  }
}

HEDDLE_VECTOR_CLONES
void f32_to_f16(const std::byte* source, std::byte* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    store(target, i, static_cast<uint16_t>(f16_bits_of_float(load<uint32_t>(source, i))));
  }
}

using Conversion = void (*)(const std::byte*, std::byte*, int64_t);

}  // namespace

void convert_elements(const void* source, DType source_dtype, void* target, DType target_dtype,
                      int64_t count) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(target);
  if (count == 0) return;
  if (source_dtype == target_dtype) {
    std::memcpy(to, from, static_cast<size_t>(bytes_of(source_dtype, count)));
    return;
  }
  HEDDLE_CHECK(is_convertible(source_dtype) && is_convertible(target_dtype));
  const Conversion widen = source_dtype == DType::kF16 ? f16_to_f32 : bf16_to_f32;
  const Conversion narrow = target_dtype == DType::kF16 ? f32_to_f16 : f32_to_bf16;
  if (source_dtype == DType::kF32) return narrow(from, to, count);
  if (target_dtype == DType::kF32) return widen(from, to, count);
  // Between the two 16-bit formats: through fp32, in pieces that fit the first-level cache.
  constexpr int64_t kPiece = 2048;
  std::array<float, kPiece> piece;
  auto* const middle = reinterpret_cast<std::byte*>(piece.data());
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t length = std::min(kPiece, count - done);
    widen(from + 2 * done, middle, length);
    narrow(middle, to + 2 * done, length);
  }
}

std::optional<int64_t> first_not_finite(const void* data, DType dtype, int64_t count) {
  constexpr int64_t kPiece = 4096;
  std::array<float, kPiece> values;
  const auto* const bytes = static_cast<const std::byte*>(data);
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t length = std::min(kPiece, count - first);
    convert_elements(bytes + bytes_of(dtype, first), dtype, values.data(), DType::kF32, length);
    const auto end = values.begin() + length;
    const auto wrong =
        std::find_if(values.begin(), end, [](float value) { return !std::isfinite(value); });
    if (wrong != end) return first + (wrong - values.begin());
  }
  return std::nullopt;
}

}  // namespace heddle::checkpoint
