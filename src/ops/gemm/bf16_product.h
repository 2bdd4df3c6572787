// SPDX-License-Identifier: Apache-2.0
// Matrix products of bf16 weights by the CPU's own bf16 dot product (AVX512-BF16), with x rounded
// to bf16 too: the layouts and loops of row_dot and panel_product, twice the work an instruction.
//
// Some CPUs (AMD since Zen 4) run these instructions at twice the rate of float32 multiply-adds,
// others (Intel without AMX in use) at half of it: bf16_products_pay() measures once per process.
// The instructions flush denormals and sum pairs in their own order: fast mode only.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

[[nodiscard]] bool has_bf16_products();  // the instructions exist

[[nodiscard]] bool bf16_products_pay();  // the instructions exist and are faster than fp32

// Numbers a row of x takes as bf16: K rounded up to whole vectors, the rest zero.
[[nodiscard]] constexpr int64_t bf16_row_width(int64_t K) { return (K + 63) / 64 * 64; }

// The functions below need has_bf16_products().

// Rounds x[0 .. K) to nearest even, and zeroes the rest of `to`, bf16_row_width(K) numbers.
void round_to_bf16(const float* x, int64_t K, uint16_t* to);

// Weights bf16; reads x_bf16 instead of x.
void row_dot_bf16(const Product& product, const Block& block);
void panel_product_bf16(const Product& product, const Block& block);

// Runs independent dot products in registers, for this_cpu.h. Returns the floating point
// operations done.
double bf16_dot_loop(int64_t rounds);

}  // namespace heddle::ops
