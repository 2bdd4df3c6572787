// SPDX-License-Identifier: Apache-2.0
// Products of few rows with E4M3 weights by the CPU's bf16 dot product (bf16_product.h): codes
// become bf16 numbers in registers, every one of them exactly, by table lookups of 64 bytes at a
// time (AVX512-VBMI), and x is rounded to bf16. For the serving dtypes only; fp8_product.h has the
// same in fp32.
//
// Serves groups of a multiple of 64 columns, or one group a row. A row of y depends on its row of x
// alone: not on T, the neighbours or the split into blocks.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

// Whether these weights can be multiplied here: they have such a format, x may be rounded, and the
// CPU has the instructions.
[[nodiscard]] bool fp8_dot_bf16_takes(const quant::PackedRows& rows);

// Rounds x[0 .. K) to nearest even, in the order fp8_dot_bf16 reads it, and zeroes the rest of
// `to`, bf16_row_width(K) numbers. Needs has_bf16_products().
void round_to_bf16_for_fp8(const float* x, int64_t K, uint16_t* to);

// Reads x_bf16 instead of x, by round_to_bf16_for_fp8(). Needs fp8_dot_bf16_takes().
void fp8_dot_bf16(const Product& product, const Block& block);

}  // namespace heddle::ops
