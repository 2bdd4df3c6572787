// SPDX-License-Identifier: Apache-2.0
// Products of few rows with quantised integer weights through the CPU's dot products of 8-bit
// integers (AVX512-VNNI): weights are read packed and never become floats. x is rounded to 8 bits
// in groups of 64 columns, s = max|x| / 127, which changes a term by at most 1/254 of its group's
// largest; sums within a group are exact, groups are added in fp32. For the serving dtypes only.
//
// Serves codes kU4 and kE2M1 with groups of 32, 64 or a multiple of 128 columns, kE2M1 also with
// groups of 16, and kU8 with zero point 128 and groups of 16, 32 or a multiple of 64; all of them
// with one group a row. A row of y depends on its row of x alone: not on T, the neighbours or the
// split into blocks.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

[[nodiscard]] bool has_int8_products();  // the instructions exist

// Whether these weights can be multiplied here: they have such a format, and x may be rounded.
[[nodiscard]] bool int8_product_takes(const quant::PackedRows& rows);

// Bytes a row of x takes when it is quantised; for any format.
[[nodiscard]] int64_t int8_row_bytes(int64_t K);

// Quantises x[0 .. K) for weights of this format into `to`, int8_row_bytes(K), 64-byte aligned.
// Needs has_int8_products().
void quantise_row(const float* x, const quant::RowFormat& format, std::byte* to);

// Reads x_int8 instead of x. Needs has_int8_products() and int8_product_takes().
void int8_dot(const Product& product, const Block& block);

}  // namespace heddle::ops
