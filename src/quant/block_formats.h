// SPDX-License-Identifier: Apache-2.0
// The quantised types of GGUF files. A row is a sequence of blocks of 32 or 256 columns; each block
// has its scales next to its codes. d and m are fp16 numbers, little-endian; q are codes.
//
//   Q8_0   32 columns: d, 32 signed bytes.                                    w = d q
//   Q4_0   32: d, 16 bytes: byte j has column j low and column 16 + j high.   w = d (q - 8)
//   Q4_1   32: d, m, 16 bytes.                                                w = d q + m
//   Q5_0   32: d, 4 bytes of fifth bits, column j in bit j, 16 bytes.         w = d (q - 16)
//   Q5_1   32: d, m, fifth bits, 16 bytes.                                    w = d q + m
//   MXFP4  32: a power of two (E8M0), 16 bytes of E2M1 codes.                 w = 2^(e - 127) q
//   Q4_K   256: d, dmin, 12 bytes of eight 6-bit scales s and minima t, 128 bytes: those of 64
//          columns in 32 bytes, 32 columns low, 32 high.                      w = d s q - dmin t
//   Q5_K   256: the same with 32 bytes of fifth bits before the 128: bits 2 i and 2 i + 1 of byte l
//          belong to columns 64 i + l and 64 i + 32 + l.
//   Q6_K   256: 128 bytes of low bits, 64 of high ones, 16 signed scales s, d. For each 128
//          columns: byte l of 64 has columns l and 64 + l, byte l of the high bits has two each of
//          columns l, 32 + l, 64 + l and 96 + l.                              w = d s (q - 32)
//
// Every product above is exact in fp32, so a weight is rounded at most once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "quant/packed_rows.h"

namespace heddle::quant {

enum class BlockType : uint8_t { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kMxfp4, kQ4K, kQ5K, kQ6K };

struct BlockSize {
  int64_t columns = 1;
  int64_t bytes = 1;
};

[[nodiscard]] BlockSize size_of(BlockType type);

// The order of a matrix's rows in a file. Row r of the matrix, written as (group, i, j) with j <
// inner and i < middle, is stored in row first + group * group_step + i * middle_step + j *
// inner_step. The default is the matrix's own order.
struct RowOrder {
  int64_t first = 0;
  int64_t middle = 1;
  int64_t inner = 1;
  int64_t group_step = 1;
  int64_t middle_step = 0;
  int64_t inner_step = 0;

  friend bool operator==(const RowOrder&, const RowOrder&) = default;

  [[nodiscard]] int64_t stored_row(int64_t row) const {
    const int64_t in_group = row % (middle * inner);
    return first + row / (middle * inner) * group_step + in_group / inner * middle_step +
           in_group % inner * inner_step;
  }
};

// Rows of K columns in blocks. Refers to memory of any alignment that it does not own.
struct BlockRows {
  BlockType type = BlockType::kQ8_0;
  int64_t K = 0;  // columns; a multiple of the block's columns
  const std::byte* data = nullptr;
  RowOrder order;

  [[nodiscard]] int64_t row_bytes() const {
    return K / size_of(type).columns * size_of(type).bytes;
  }

  [[nodiscard]] const std::byte* row(int64_t row) const {
    return data + order.stored_row(row) * row_bytes();
  }
};

// The format of packed rows that hold this type without a change of value; none if there is none.
// GPU kernels support neither minima nor scales of 256 columns: for them Q6_K has fp32 scales, and
// types with minima have no format.
[[nodiscard]] std::optional<RowFormat> packed_format(BlockType type, int64_t K,
                                                     bool on_gpu = false);

// Writes the numbers that `num_blocks` blocks represent to `target`. Cost: about a nanosecond a
// column.
void dequantise_blocks(BlockType type, const std::byte* blocks, int64_t num_blocks, float* target);

// Unpacks all rows to `matrix`, which has packed_format()'s format and arrays of the right size.
// Cost: as dequantise_blocks().
void unpack_blocks(const BlockRows& rows, UnpackedMatrix& matrix);

}  // namespace heddle::quant
