// SPDX-License-Identifier: Apache-2.0
#include "quant/packed_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::quant {

namespace {

const char* name_of(Code code, ScaleType scale) {
  switch (code) {
    case Code::kU4:
      return "int4";
    case Code::kU8:
      return "int8";
    case Code::kE2M1:
      return has_factor(scale) ? "nvfp4" : "mxfp4";
    case Code::kE4M3:
      return "fp8";
  }
  return "unknown";
}

const char* name_of(ScaleType type) {
  switch (type) {
    case ScaleType::kF32:
      return "float32";
    case ScaleType::kBf16:
      return "bfloat16";
    case ScaleType::kF16:
      return "float16";
    case ScaleType::kE8M0:
      return "power-of-two";
    case ScaleType::kE4M3Times:
      return "float8 times float32";
    case ScaleType::kE4M3Over:
      return "float8 over float32";
    case ScaleType::kU8Times:
      return "uint8 times float16";
    case ScaleType::kI8Times:
      return "int8 times float16";
  }
  return "unknown";
}

}  // namespace

int64_t bytes_of(ScaleType type) {
  switch (type) {
    case ScaleType::kF32:
      return 4;
    case ScaleType::kBf16:
    case ScaleType::kF16:
      return 2;
    case ScaleType::kE8M0:
    case ScaleType::kE4M3Times:
    case ScaleType::kE4M3Over:
    case ScaleType::kU8Times:
    case ScaleType::kI8Times:
      return 1;
  }
  HEDDLE_CHECK(false && "unknown scale type");
}

int64_t RowFormat::scale_bytes() const {
  const int64_t bytes = num_groups() * bytes_of(scale);
  if (has_factor(scale)) return (kFactorBytes + bytes + 3) / 4 * 4;
  return (2 * num_wide_scales() + bytes) * (has_minima ? 2 : 1);
}

bool RowFormat::same_layout(const RowFormat& other) const {
  const bool same_index =
      group_index == other.group_index || (group_index != nullptr && other.group_index != nullptr &&
                                           *group_index == *other.group_index);
  return code == other.code && scale == other.scale && K == other.K &&
         num_groups() == other.num_groups() &&
         (group_index != nullptr || group_size == other.group_size) &&
         has_zeros == other.has_zeros && (has_zeros || constant_zero == other.constant_zero) &&
         block_rows == other.block_rows && has_minima == other.has_minima && same_index;
}

std::string RowFormat::to_string() const {
  const std::string groups = group_index != nullptr ? "groups in activation order"
                             : group_size >= K      ? std::string("one scale a row")
                                                    : fmt::format("groups of {}", group_size);
  return fmt::format("{}, {}, {} scales{}", name_of(code, scale), groups, name_of(scale),
                     has_zeros    ? ", zero points"
                     : has_minima ? ", minima"
                                  : "");
}

int64_t PackedRows::num_bytes() const {
  return num_rows * (format.code_bytes() + (format.has_zeros ? format.num_groups() : 0)) +
         num_scale_rows() * format.scale_bytes();
}

PackedRows PackedRows::cut(int64_t first, int64_t count) const {
  HEDDLE_CHECK(first >= 0 && count >= 0 && first + count <= num_rows);
  PackedRows rows = *this;
  rows.num_rows = count;
  rows.codes += first * format.code_bytes();
  rows.scales += scale_row(first) * format.scale_bytes();
  rows.first_scale_rows = (first_scale_rows + first) % rows_per_scale;
  if (zeros != nullptr) rows.zeros += first * format.num_groups();
  return rows;
}

int64_t PackedWeight::num_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts) {
    bytes += part.plain.data != nullptr ? part.plain.num_bytes() : part.packed.num_bytes();
  }
  return bytes;
}

PackedWeight PackedWeight::cut(int64_t first, int64_t count) const {
  PackedWeight rows{.on_gpu = on_gpu};
  for (const Part& part : parts) {
    const int64_t begin = std::max(first, part.first_row);
    const int64_t end = std::min(first + count, part.first_row + part.num_rows);
    if (begin >= end) continue;
    const int64_t skipped = begin - part.first_row;
    Part own{.first_row = begin - first, .num_rows = end - begin};
    if (part.plain.data != nullptr) {
      const TensorView& plain = part.plain;
      own.plain = TensorView(
          plain.as<std::byte>() + heddle::bytes_of(plain.dtype, skipped * plain.row_stride),
          plain.dtype, {own.num_rows, plain.shape[1]}, plain.row_stride);
    } else {
      own.packed = part.packed.cut(skipped, own.num_rows);
    }
    rows.parts.push_back(std::move(own));
  }
  return rows;
}

int64_t stored_bytes(const TensorView& weight) {
  return weight.packed != nullptr ? weight.packed->num_bytes() : weight.num_bytes();
}

namespace {

void pack_four_bits(const uint8_t* codes, int64_t K, uint8_t* target) {
  for (int64_t k = 0; k < K; k += 128, target += 64) {
    const int64_t low = std::min<int64_t>(64, K - k);
    const int64_t high = std::clamp<int64_t>(K - k - 64, 0, 64);
    std::memset(target, 0, 64);
    for (int64_t i = 0; i < low; ++i) target[i] = codes[k + i];
    for (int64_t i = 0; i < high; ++i) {
      target[i] = static_cast<uint8_t>(target[i] | (codes[k + 64 + i] << 4));
    }
  }
}

}  // namespace

void pack_rows(const UnpackedMatrix& source, int64_t source_row, int64_t count,
               const PackedRows& target, int64_t target_row) {
  const RowFormat& format = source.format;
  HEDDLE_CHECK(format.same_layout(target.format));
  HEDDLE_CHECK(source_row >= 0 && source_row + count <= source.N);
  HEDDLE_CHECK(target_row >= 0 && target_row + count <= target.num_rows);
  const int64_t code_bytes = format.code_bytes();
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* const codes = source.codes.data() + (source_row + row) * format.K;
    auto* const to = reinterpret_cast<uint8_t*>(target.codes) + (target_row + row) * code_bytes;
    if (format.four_bits()) {
      pack_four_bits(codes, format.K, to);
    } else {
      std::memcpy(to, codes, static_cast<size_t>(format.K));
      std::memset(to + format.K, 0, static_cast<size_t>(code_bytes - format.K));
    }
  }
  const int64_t scale_bytes = format.scale_bytes();
  if (target.rows_per_scale == 1) {
    std::memcpy(target.scales + target_row * scale_bytes,
                source.scales.data() + source_row * scale_bytes,
                static_cast<size_t>(count * scale_bytes));
  } else {
    for (int64_t row = 0, done = -1; row < count; ++row) {
      const int64_t scale_row = target.scale_row(target_row + row);
      if (scale_row == std::exchange(done, scale_row)) continue;
      std::memcpy(target.scales + scale_row * scale_bytes,
                  source.scales.data() + (source_row + row) * scale_bytes,
                  static_cast<size_t>(scale_bytes));
    }
  }
  if (format.has_zeros) {
    const int64_t groups = format.num_groups();
    std::memcpy(target.zeros + target_row * groups, source.zeros.data() + source_row * groups,
                static_cast<size_t>(count * groups));
  }
}

}  // namespace heddle::quant
