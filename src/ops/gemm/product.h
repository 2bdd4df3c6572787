// SPDX-License-Identifier: Apache-2.0
// Product: one matrix product y = x W^T (+ bias) as plain pointers, what every CPU kernel of this
// folder works on. Pointers need only the alignment of their type's bytes (weights may lie anywhere
// in a mapped file); strides are in elements and may exceed the widths, and what lies between is
// never read.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "quant/packed_rows.h"

namespace heddle::ops {

// Kernels that read weights once, as they lie in memory, ask for the line this far ahead: not every
// CPU's own prefetching is enough. On a Xeon (Sapphire Rapids) one row of x goes from a half of
// what memory gives to three quarters of it; 2 to 4 KiB do equally well there.
inline constexpr uintptr_t kStreamAheadBytes = 3072;

struct Product {
  const float* x = nullptr;  // [T, K]
  int64_t x_stride = 0;

  const uint16_t* x_bf16 =
      nullptr;  // x by round_to_bf16() (bf16_product.h); only the bf16 kernels read it
  int64_t x_bf16_stride = 0;

  const int32_t* x_rows =
      nullptr;  // [T] which row of x (and x_bf16) row t of y multiplies, or none: t

  const void* weight = nullptr;  // [N, K] f32, bf16 or f16
  int64_t weight_stride = 0;
  DType weight_dtype = DType::kF32;

  // For dtype kPacked: rows [packed_row, packed_row + N) of these replace `weight`.
  const quant::PackedRows* packed = nullptr;
  int64_t packed_row = 0;
  const std::byte* x_int8 =
      nullptr;  // x by quantise_row() (int8_product.h); only the 8-bit kernels read it
  int64_t x_int8_stride = 0;  // bytes

  const float* bias = nullptr;  // [N] or none

  float* y = nullptr;  // [T, N]
  int64_t y_stride = 0;

  int64_t T = 0;
  int64_t K = 0;
  int64_t N = 0;

  [[nodiscard]] int64_t x_row(int64_t t) const { return x_rows == nullptr ? t : x_rows[t]; }
};

// The part of y one task computes: rows [row_begin, row_end), columns [column_begin, column_end).
struct Block {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;
};

}  // namespace heddle::ops
