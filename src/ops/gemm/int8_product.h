// SPDX-License-Identifier: Apache-2.0
// Products of few rows with quantised integer weights by the CPU's dot products of 8-bit integers
// (AVX512-VNNI): weights are read packed and are never converted to floats. x is rounded to 8 bits
// in groups of 64 columns with scale s = max|x| / 127, which changes a term by at most 1/254 of its
// group's largest. Sums within a group are exact; groups are added in fp32. Only for runs in bf16
// or fp16.
//
// Supports codes kU4 and kE2M1 with groups of 32, 64 or a multiple of 128 columns, kE2M1 also with
// groups of 16, and kU8 with zero point 128 and groups of 16, 32 or a multiple of 64; all of them
// also with one group for a whole row. A row of y depends on its row of x alone: not on T, the
// other rows or the split into blocks.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

[[nodiscard]] bool has_int8_products();  // the CPU has AVX512-VNNI

// Whether this kernel can multiply these weights: they have a supported format, and x may be
// rounded to 8 bits.
[[nodiscard]] bool int8_product_takes(const quant::PackedRows& rows);

// Bytes of a quantised row of x, enough for any weight format.
[[nodiscard]] int64_t int8_row_bytes(int64_t K);

// Quantises x[0 .. K) for weights of this format into `to`, which has int8_row_bytes(K) bytes and
// is 64-byte aligned. Requires has_int8_products().
void quantise_row(const float* x, const quant::RowFormat& format, std::byte* to);

// Reads x_int8 instead of x. Requires has_int8_products() and int8_product_takes().
void int8_dot(const Product& product, const Block& block);

}  // namespace heddle::ops
