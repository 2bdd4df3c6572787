// SPDX-License-Identifier: Apache-2.0
// Products of few rows with E4M3 weights by the CPU's bf16 dot product (bf16_product.h). Codes
// become bf16 numbers in registers, without rounding, by table lookups of 64 bytes at a time
// (AVX512-VBMI); x is rounded to bf16. Only for runs in bf16 or fp16; fp8_product.h computes the
// same in fp32.
//
// Supports scale groups of a multiple of 64 columns, or one group for a whole row. A row of y
// depends on its row of x alone: not on T, the other rows or the split into blocks.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

// Whether this kernel can multiply these weights: they have a supported format, x may be rounded to
// bf16, and the CPU has the instructions.
[[nodiscard]] bool fp8_dot_bf16_takes(const quant::PackedRows& rows);

// Rounds x[0 .. K) to the nearest bf16, ties to even, in the order in which fp8_dot_bf16() reads
// them, and fills `to` with zeros up to bf16_row_width(K) elements. Requires has_bf16_products().
void round_to_bf16_for_fp8(const float* x, int64_t K, uint16_t* to);

// Reads x_bf16, which round_to_bf16_for_fp8() has written, instead of x. Requires
// fp8_dot_bf16_takes().
void fp8_dot_bf16(const Product& product, const Block& block);

}  // namespace heddle::ops
