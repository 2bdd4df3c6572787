// SPDX-License-Identifier: Apache-2.0
// Product: one matrix product y = x W^T (+ bias) as plain pointers: the arguments of every CPU
// kernel in this folder. Pointers need only the alignment of their element type (weights may be
// anywhere in a mapped file). Strides are in elements and may exceed the widths; the elements
// between rows are never read.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "quant/packed_rows.h"

namespace heddle::ops {

// How far ahead kernels that read weights once, in memory order, prefetch. The hardware prefetchers
// of some CPUs are not enough. On a Xeon (Sapphire Rapids) this raises a product with one row of x
// from a half to three quarters of the memory bandwidth; 2 to 4 KiB are equally good there.
inline constexpr uintptr_t kStreamAheadBytes = 3072;

struct Product {
  const float* x = nullptr;  // [T, K] fp32 activations
  int64_t x_stride = 0;

  const uint16_t* x_bf16 =
      // x rounded by round_to_bf16() (bf16_product.h); only the bf16 kernels read it
      nullptr;
  int64_t x_bf16_stride = 0;

  const int32_t* x_rows =
      // [T]: the row of x (and x_bf16) that row t of y multiplies; null: row t.
      nullptr;

  const void* weight = nullptr;  // weight [N, K] f32, bf16 or f16
  int64_t weight_stride = 0;
  DType weight_dtype = DType::kF32;

  // For dtype kPacked: rows [packed_row, packed_row + N) of this packed weight are used instead of
  // `weight`.
  const quant::PackedRows* packed = nullptr;
  int64_t packed_row = 0;
  const std::byte* x_int8 =
      // x quantised by quantise_row() (int8_product.h); only the 8-bit kernels read it
      nullptr;
  int64_t x_int8_stride = 0;  // bytes from one row of x_int8 to the next

  const float* bias = nullptr;  // [N]; null: no bias

  float* y = nullptr;  // [T, N] fp32 results
  int64_t y_stride = 0;

  int64_t T = 0;
  int64_t K = 0;
  int64_t N = 0;

  [[nodiscard]] int64_t x_row(int64_t t) const { return x_rows == nullptr ? t : x_rows[t]; }
};

// The part of y that one task computes: rows [row_begin, row_end), columns [column_begin,
// column_end).
struct Block {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;
};

}  // namespace heddle::ops
