// SPDX-License-Identifier: Apache-2.0
#include "quant/dequantise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"
#include "core/compiler.h"
#include "quant/small_floats.h"

namespace heddle::quant {

namespace {

// The scale of a group; its minimum if `scales` points to a row's minima.
float scale_at(const std::byte* scales, const RowFormat& format, int64_t group) {
  switch (format.scale) {
    case ScaleType::kF32: {
      float value;
      std::memcpy(&value, scales + 4 * group, sizeof(value));
      return value;
    }
    case ScaleType::kBf16: {
      Bf16 value;
      std::memcpy(&value, scales + 2 * group, sizeof(value));
      return to_float(value);
    }
    case ScaleType::kF16:
      return half_at(scales + 2 * group);
    case ScaleType::kE8M0:
      return e8m0_to_float(static_cast<uint8_t>(scales[group]));
    case ScaleType::kE4M3Times:
    case ScaleType::kE4M3Over: {
      float factor;
      std::memcpy(&factor, scales, sizeof(factor));
      const float scale = e4m3_to_float(static_cast<uint8_t>(scales[kFactorBytes + group]));
      return format.scale == ScaleType::kE4M3Times ? scale * factor : scale / factor;
    }
    case ScaleType::kU8Times:
    case ScaleType::kI8Times: {
      const float wide = half_at(scales + 2 * (group * format.group_size / kWideScaleColumns));
      const auto byte = static_cast<uint8_t>(scales[2 * format.num_wide_scales() + group]);
      return wide * (format.scale == ScaleType::kU8Times
                         ? static_cast<float>(byte)
                         : static_cast<float>(static_cast<int8_t>(byte)));
    }
  }
  HEDDLE_CHECK(false && "unknown scale type");
}

float value_of(Code code, uint8_t bits) {
  switch (code) {
    case Code::kU4:
    case Code::kU8:
      return static_cast<float>(bits);
    case Code::kE2M1:
      return e2m1_to_float(bits);
    case Code::kE4M3:
      return e4m3_to_float(bits);
  }
  HEDDLE_CHECK(false && "unknown code");
}

uint8_t code_at(const PackedRows& rows, int64_t row, int64_t k) {
  const uint8_t* const codes = rows.row_codes(row);
  if (!rows.format.four_bits()) return codes[k];
  const uint8_t both = codes[k / 128 * 64 + k % 64];
  return (k / 64) % 2 == 0 ? both & 15u : both >> 4;
}

constexpr float kNothing = -0.0f;  // -0: adding it does not even change the sign of a zero

float minimum_at(const std::byte* scales, const RowFormat& format, int64_t group) {
  return format.has_minima ? scale_at(scales + format.minima_begin(), format, group) : kNothing;
}

constexpr int64_t kPiece = 128;  // number of columns that are dequantised at a time

HEDDLE_VECTOR_CLONES
void integers_to_floats(const uint8_t* codes, float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(codes[i]);
}

HEDDLE_VECTOR_CLONES
void halves_to_floats(const uint8_t* codes, float* values) {
  for (int64_t i = 0; i < 64; ++i) values[i] = static_cast<float>(codes[i] & 15);
  for (int64_t i = 0; i < 64; ++i) values[64 + i] = static_cast<float>(codes[i] >> 4);
}

// NaN codes need no special case: reading a checkpoint refuses them (file_formats.h).
HEDDLE_VECTOR_CLONES
void e4m3_to_floats(const uint8_t* codes, float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(codes[i]);
    const float magnitude = std::bit_cast<float>((bits & 0x7fu) << 20) * 0x1p120f;
    values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | ((bits & 0x80u) << 24));
  }
}

void e2m1_to_floats(const uint8_t* codes, float* values) {
  for (int64_t i = 0; i < 64; ++i) {
    values[i] = e2m1_to_float(codes[i] & 15);
    values[64 + i] = e2m1_to_float(codes[i] >> 4);
  }
}

HEDDLE_VECTOR_CLONES
void scale_values(const float* values, float zero, float scale, float minimum, float* target,
                  int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = (values[i] - zero) * scale + minimum;
}

}  // namespace

float scale_of(const PackedRows& rows, int64_t row, int64_t group) {
  return scale_at(rows.row_scales(row), rows.format, group);
}

float minimum_of(const PackedRows& rows, int64_t row, int64_t group) {
  return minimum_at(rows.row_scales(row), rows.format, group);
}

float dequantised_element(const PackedRows& rows, int64_t row, int64_t k) {
  const RowFormat& format = rows.format;
  const int64_t group = format.group_of(k);
  const auto zero =
      static_cast<float>(format.has_zeros ? rows.row_zeros(row)[group] : format.constant_zero);
  return (value_of(format.code, code_at(rows, row, k)) - zero) * scale_of(rows, row, group) +
         minimum_of(rows, row, group);
}

void dequantise_row(const PackedRows& rows, int64_t row, int64_t first, int64_t count,
                    float* target) {
  HEDDLE_DCHECK(first % kPiece == 0);
  const RowFormat& format = rows.format;
  const uint8_t* const codes = rows.row_codes(row);
  const std::byte* const scales = rows.row_scales(row);
  const uint8_t* const zeros = rows.row_zeros(row);
  const auto zero_of = [&](int64_t group) {
    return static_cast<float>(zeros != nullptr ? zeros[group] : format.constant_zero);
  };
  std::array<float, kPiece> values;
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t begin = first + done;
    const int64_t length = std::min(kPiece, count - done);
    switch (format.code) {
      case Code::kU4:
        halves_to_floats(codes + begin / 2, values.data());
        break;
      case Code::kE2M1:
        e2m1_to_floats(codes + begin / 2, values.data());
        break;
      case Code::kU8:
        integers_to_floats(codes + begin, values.data(), length);
        break;
      case Code::kE4M3:
        e4m3_to_floats(codes + begin, values.data(), length);
        break;
    }
    if (format.group_index != nullptr) {
      for (int64_t i = 0; i < length; ++i) {
        const int64_t group = format.group_of(begin + i);
        target[done + i] =
            (values[static_cast<size_t>(i)] - zero_of(group)) * scale_at(scales, format, group) +
            minimum_at(scales, format, group);
      }
      continue;
    }
    for (int64_t i = 0; i < length;) {
      const int64_t group = (begin + i) / format.group_size;
      const int64_t end = std::min(length, (group + 1) * format.group_size - begin);
      scale_values(values.data() + i, zero_of(group), scale_at(scales, format, group),
                   minimum_at(scales, format, group), target + done + i, end - i);
      i = end;
    }
  }
}

}  // namespace heddle::quant
