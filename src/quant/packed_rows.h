// SPDX-License-Identifier: Apache-2.0
// The form of a quantised weight in memory: PackedRows, a matrix [N, K] of small codes with a scale
// (and a zero point, or a minimum) for every group of a row. Every checkpoint format becomes this
// one:
//
//     W[n, k] = (value(code[n, k]) - zero[n, g]) * scale[n, g] + minimum[n, g]      g = group_of(k)
//
// with the product rounded once, to fp32, as the formats' own references do it. Where there are
// minima the product is exact, and the sum is what is rounded.
//
// Codes, scales and zeros are three dense arrays, a row of each of fixed length. Rows that share
// their scales, those of a block, have one row of scales together: repeated for each row, scales
// of 128 columns would be 3 % of the weight. Scales on two levels are a byte a group times one
// number: for kE4M3Times and kE4M3Over the fp32 number that those of one tensor share, which lies
// in front of each row's, so that rows of several tensors make one part; for kU8Times and kI8Times
// an fp16 number for 256 columns, which lie in front of the bytes, too. Minima have the type of the
// scales and the same layout, and follow them in the same row of scales. 4-bit codes lie in
// chunks of 128 columns and 64 bytes: byte i holds column i of the chunk in its low half and column
// 64 + i in its high half, so that one mask and one shift give 64 columns in order. The last chunk
// of a row is padded with code 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace heddle::quant {

// Wider rows are refused when they are loaded.
inline constexpr int64_t kMaxPackedWidth = 65536;

enum class Code : uint8_t {
  kU4,    // integers 0..15
  kU8,    // integers 0..255
  kE2M1,  // 4-bit floats, 0 to 6 with signs
  kE4M3,  // 8-bit floats, up to 448
};

enum class ScaleType : uint8_t {
  kF32,
  kBf16,
  kF16,
  kE8M0,
  kE4M3Times,  // E4M3 times the row's factor, rounded to fp32
  kE4M3Over,   // E4M3 divided by it, rounded to fp32
  kU8Times,    // a byte times the fp16 number of its 256 columns, which is exact
  kI8Times,    // scale times a signed byte
};

// The bytes of one scale; for two-level scales, of the scale on the lower level.
[[nodiscard]] int64_t bytes_of(ScaleType type);

// Whether a row of scales begins with an fp32 factor of all of them.
[[nodiscard]] constexpr bool has_factor(ScaleType type) {
  return type == ScaleType::kE4M3Times || type == ScaleType::kE4M3Over;
}

inline constexpr int64_t kFactorBytes = 4;

// Whether a row of scales begins with fp16 numbers of 256 columns each.
[[nodiscard]] constexpr bool has_wide_scales(ScaleType type) {
  return type == ScaleType::kU8Times || type == ScaleType::kI8Times;
}

inline constexpr int64_t kWideScaleColumns = 256;

// The format that all rows of a part share.
struct RowFormat {
  Code code = Code::kU8;
  ScaleType scale = ScaleType::kF32;
  int64_t K = 0;
  int64_t group_size = 0;  // columns that share a scale; K for one scale a row
  bool has_zeros = false;  // whether each group has a zero point of its own
  // Without has_zeros, the zero point of all groups: 8 and 128 for symmetric integers, 0 for
  // floats.
  uint8_t constant_zero = 0;
  std::shared_ptr<const std::vector<int32_t>> group_index;  // [K], where groups are not consecutive
  int64_t num_indexed_groups = 0;                           // with group_index
  int64_t block_rows = 1;  // rows of the stored matrix, from a multiple of it on, that share scales
  bool has_minima = false;  // whether each group has a number that is added to its products

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

  // Bytes that the scales and minima of one row take, a multiple of 4 where a factor is among them.
  [[nodiscard]] int64_t scale_bytes() const;

  // Where the minima begin in a row of scales.
  [[nodiscard]] int64_t minima_begin() const { return scale_bytes() / 2; }

  // Bytes of a row that has its own scales.
  [[nodiscard]] int64_t row_bytes() const {
    return code_bytes() + scale_bytes() + (has_zeros ? num_groups() : 0);
  }

  // Whether rows of both may lie in one part.
  [[nodiscard]] bool same_layout(const RowFormat& other) const;

  [[nodiscard]] std::string to_string() const;  // "int4, groups of 128, bfloat16 scales"
};

// [num_rows] rows of one format. Points at memory that it does not own.
struct PackedRows {
  RowFormat format;
  int64_t num_rows = 0;
  std::byte* codes = nullptr;   // 64-byte aligned, format.code_bytes() a row
  std::byte* scales = nullptr;  // format.scale_bytes() a row of scales, minima among them
  uint8_t* zeros = nullptr;     // format.num_groups() a row, or none

  int64_t rows_per_scale = 1;    // consecutive rows that share a row of scales
  int64_t first_scale_rows = 0;  // rows of the first such run that lie before row 0

  const int32_t* gpu_group_index = nullptr;  // format.group_index in the memory of a GPU

  // Whether products may round x for these weights, to 8 bits or to bf16 as their kernel does: in
  // the serving dtypes, never in fp32.
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

  // Codes, scales, minima and zero points.
  [[nodiscard]] int64_t num_bytes() const;

  // Rows [first, first + count), where they lie.
  [[nodiscard]] PackedRows cut(int64_t first, int64_t count) const;
};

// A weight whose rows are stored in one or more ways, top to bottom: projections that one product
// computes need not have been quantised alike, and some of them may not be quantised at all.
// A TensorView of dtype kPacked points at one of these and has the logical shape.
struct PackedWeight {
  struct Part {
    int64_t first_row = 0;  // the part's first row in the weight, all leading dimensions flattened
    int64_t num_rows = 0;
    TensorView plain;   // [num_rows, K] where the part is not quantised
    PackedRows packed;  // otherwise
  };

  std::vector<Part> parts;
  bool on_gpu = false;  // whether the parts lie in the memory of a GPU

  [[nodiscard]] int64_t num_bytes() const;

  // Rows [first, first + count), where they lie.
  [[nodiscard]] PackedWeight cut(int64_t first, int64_t count) const;
};

// Bytes a weight takes in memory, packed or plain.
[[nodiscard]] int64_t stored_bytes(const TensorView& weight);

// A quantised matrix between a file's layout and ours, one byte a code: made by the readers of the
// file formats (file_formats.h) and the quantisers (round_to_nearest.h), packed row by row. There
// is one at a time, never a whole model.
struct UnpackedMatrix {
  RowFormat format;
  int64_t N = 0;
  std::vector<uint8_t> codes;     // [N, K]
  std::vector<std::byte> scales;  // [N, format.scale_bytes()], also where rows share them
  std::vector<uint8_t> zeros;     // [N, groups], or empty
};

// Copies rows [source_row, source_row + count) to rows from target_row on. The formats must have
// the same layout; rows that share a row of scales in `target` have the same in `source`.
void pack_rows(const UnpackedMatrix& source, int64_t source_row, int64_t count,
               const PackedRows& target, int64_t target_row);

}  // namespace heddle::quant
