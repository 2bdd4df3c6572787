// SPDX-License-Identifier: Apache-2.0
// PackedRows: a quantised weight in memory, a matrix [N, K] of small codes with a scale (and a zero
// point, or a minimum) for every group of columns in a row. Every checkpoint format is converted to
// this one:
//
//     W[n, k] = (value(code[n, k]) - zero[n, g]) * scale[n, g] + minimum[n, g]      g = group_of(k)
//
// with the product rounded once, to fp32, as in the formats' reference implementations. With minima
// the product is exact, and only the sum is rounded.
//
// Codes, scales and zero points are three dense arrays with rows of fixed length. The rows of a
// block that share their scales have one common row of scales: repeated for each row, scales of 128
// columns would be 3 % of the weight. Two-level scales are a byte per group times one number. For
// kE4M3Times and kE4M3Over this is an fp32 number for a whole tensor; it is stored before the bytes
// in each row, so that rows of several tensors can be in one part. For kU8Times and kI8Times it is
// an fp16 number for 256 columns, also stored before the bytes. Minima have the type and layout of
// the scales and follow them in the same row. 4-bit codes are stored in chunks of 128 columns, 64
// bytes: byte i has column i of the chunk in its low half and column 64 + i in its high half, so
// that one mask and one shift give 64 columns in order. The last chunk of a row is padded with code
// 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace heddle::quant {

// The most columns of a packed row; loading refuses wider ones.
inline constexpr int64_t kMaxPackedWidth = 65536;

enum class Code : uint8_t {
  kU4,    // 4-bit integers, 0 to 15
  kU8,    // 8-bit integers, 0 to 255
  kE2M1,  // 4-bit floats, 0 to 6 with signs
  kE4M3,  // 8-bit floats, up to 448
};

enum class ScaleType : uint8_t {
  kF32,
  kBf16,
  kF16,
  kE8M0,
  kE4M3Times,  // E4M3 times the row's factor, rounded to fp32
  kE4M3Over,   // E4M3 divided by the row's factor, rounded to fp32
  kU8Times,    // an unsigned byte times the fp16 number of its 256 columns, an exact product
  kI8Times,    // a signed byte times the fp16 number of its 256 columns
};

// Bytes of one scale; for two-level scales, of the lower-level one.
[[nodiscard]] int64_t bytes_of(ScaleType type);

// Whether a row of scales begins with an fp32 factor on all of its scales.
[[nodiscard]] constexpr bool has_factor(ScaleType type) {
  return type == ScaleType::kE4M3Times || type == ScaleType::kE4M3Over;
}

inline constexpr int64_t kFactorBytes = 4;

// Whether a row of scales begins with fp16 numbers, one for every 256 columns.
[[nodiscard]] constexpr bool has_wide_scales(ScaleType type) {
  return type == ScaleType::kU8Times || type == ScaleType::kI8Times;
}

inline constexpr int64_t kWideScaleColumns = 256;

// The format that all rows of a part share.
struct RowFormat {
  Code code = Code::kU8;
  ScaleType scale = ScaleType::kF32;
  int64_t K = 0;
  int64_t group_size = 0;  // columns that share a scale; K if a row has one scale
  bool has_zeros = false;  // whether each group has its own zero point
  // Without has_zeros, the zero point of all groups: 8 and 128 for symmetric integers, 0 for
  // floats.
  uint8_t constant_zero = 0;
  // [K]: the group of each column; null if the groups are consecutive
  std::shared_ptr<const std::vector<int32_t>> group_index;
  int64_t num_indexed_groups = 0;  // number of groups in group_index
  int64_t block_rows = 1;  // rows of the stored matrix that share scales; blocks begin at multiples
                           // of this number
  bool has_minima = false;  // whether each group has a minimum, which is added to its products

  [[nodiscard]] bool four_bits() const { return code == Code::kU4 || code == Code::kE2M1; }

  [[nodiscard]] int64_t num_groups() const {
    return group_index != nullptr ? num_indexed_groups : (K + group_size - 1) / group_size;
  }

  [[nodiscard]] int64_t group_of(int64_t k) const {
    return group_index != nullptr ? (*group_index)[static_cast<size_t>(k)] : k / group_size;
  }

  [[nodiscard]] int64_t code_bytes() const {
    return four_bits() ? (K + 127) / 128 * 64 : (K + 63) / 64 * 64;
  }

  [[nodiscard]] int64_t num_wide_scales() const {
    return has_wide_scales(scale) ? (K + kWideScaleColumns - 1) / kWideScaleColumns : 0;
  }

  // Bytes of the scales and minima of one row; a multiple of 4 if they include an fp32 factor.
  [[nodiscard]] int64_t scale_bytes() const;

  // Byte offset of the minima in a row of scales.
  [[nodiscard]] int64_t minima_begin() const { return scale_bytes() / 2; }

  // Bytes of a row that does not share its scales.
  [[nodiscard]] int64_t row_bytes() const {
    return code_bytes() + scale_bytes() + (has_zeros ? num_groups() : 0);
  }

  // Whether rows of both formats may be in one part.
  [[nodiscard]] bool same_layout(const RowFormat& other) const;

  [[nodiscard]] std::string to_string() const;  // "int4, groups of 128, bfloat16 scales"
};

// [num_rows] rows of one format. Refers to memory that it does not own.
struct PackedRows {
  RowFormat format;
  int64_t num_rows = 0;
  std::byte* codes = nullptr;   // 64-byte aligned; format.code_bytes() bytes per row
  std::byte* scales = nullptr;  // format.scale_bytes() bytes per row of scales, minima included
  uint8_t* zeros = nullptr;     // format.num_groups() bytes per row; null without zero points

  int64_t rows_per_scale = 1;    // consecutive rows that share a row of scales
  int64_t first_scale_rows = 0;  // number of rows before row 0 that share row 0's scales

  const int32_t* gpu_group_index = nullptr;  // copy of format.group_index in GPU memory

  // Whether products may round x for these weights, to 8 bits or to bf16 depending on the kernel:
  // true for 16-bit runs, never for fp32.
  bool may_round_x = false;

  [[nodiscard]] const uint8_t* row_codes(int64_t row) const {
    return reinterpret_cast<const uint8_t*>(codes) + row * format.code_bytes();
  }

  [[nodiscard]] int64_t scale_row(int64_t row) const {
    return (first_scale_rows + row) / rows_per_scale;
  }

  [[nodiscard]] int64_t num_scale_rows() const {
    return num_rows == 0 ? 0 : scale_row(num_rows - 1) + 1;
  }

  [[nodiscard]] const std::byte* row_scales(int64_t row) const {
    return scales + scale_row(row) * format.scale_bytes();
  }

  [[nodiscard]] const uint8_t* row_zeros(int64_t row) const {
    return zeros == nullptr ? nullptr : zeros + row * format.num_groups();
  }

  // Bytes of codes, scales, minima and zero points.
  [[nodiscard]] int64_t num_bytes() const;

  // Rows [first, first + count), without a copy.
  [[nodiscard]] PackedRows cut(int64_t first, int64_t count) const;
};

// A weight whose rows are stored in one or more formats, one part after the other: the projections
// that one product computes may be quantised differently, or not at all. A TensorView of dtype
// kPacked points to a PackedWeight and has the weight's logical shape.
struct PackedWeight {
  struct Part {
    int64_t first_row = 0;  // index of the part's first row in the weight, with all leading
                            // dimensions flattened
    int64_t num_rows = 0;
    TensorView plain;   // [num_rows, K] if the part is not quantised
    PackedRows packed;  // the rows if the part is quantised
  };

  std::vector<Part> parts;
  bool on_gpu = false;  // whether the parts are in GPU memory

  [[nodiscard]] int64_t num_bytes() const;

  // Rows [first, first + count), without a copy.
  [[nodiscard]] PackedWeight cut(int64_t first, int64_t count) const;
};

// Bytes of a weight in memory, packed or plain.
[[nodiscard]] int64_t stored_bytes(const TensorView& weight);

// A quantised matrix between a file's layout and PackedRows, one byte a code. The readers of file
// formats (file_formats.h) and the quantisers (round_to_nearest.h) make it; pack_rows() packs it.
// It exists for one matrix at a time, never for a whole model.
struct UnpackedMatrix {
  RowFormat format;
  int64_t N = 0;
  std::vector<uint8_t> codes;     // [N, K]
  std::vector<std::byte> scales;  // [N, format.scale_bytes()]; rows that share scales have copies
  std::vector<uint8_t> zeros;     // [N, groups], or empty without zero points
};

// Copies `count` rows from `source_row` on to rows of `target` from `target_row` on. The formats
// must have the same layout; rows that share scales in `target` must have equal scales in `source`.
void pack_rows(const UnpackedMatrix& source, int64_t source_row, int64_t count,
               const PackedRows& target, int64_t target_row);

}  // namespace heddle::quant
