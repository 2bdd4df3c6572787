// SPDX-License-Identifier: Apache-2.0
// Matrix products with bf16 weights by the CPU's bf16 dot product instruction (AVX512-BF16); x is
// rounded to bf16 as well. Layouts and loops are those of row_dot and panel_product, with twice the
// work per instruction.
//
// Some CPUs (AMD since Zen 4) run these instructions at twice the rate of float32 multiply-adds,
// others (Intel without AMX in use) at half of it: bf16_products_pay() measures once per process.
// The instructions flush denormals and add pairs in a hardware-defined order: fast mode only.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

[[nodiscard]] bool has_bf16_products();  // the CPU has AVX512-BF16

[[nodiscard]] bool bf16_products_pay();  // the CPU has AVX512-BF16, and it is faster than fp32

// Number of bf16 elements that a row of x is stored with: K rounded up to whole vectors, padded
// with zeros.
[[nodiscard]] constexpr int64_t bf16_row_width(int64_t K) { return (K + 63) / 64 * 64; }

// The functions below may only be called where has_bf16_products() is true.

// Rounds x[0 .. K) to the nearest bf16, ties to even, and fills `to` with zeros up to
// bf16_row_width(K) elements.
void round_to_bf16(const float* x, int64_t K, uint16_t* to);

// The weight is bf16; x_bf16 is read instead of x.
void row_dot_bf16(const Product& product, const Block& block);
void panel_product_bf16(const Product& product, const Block& block);

// Executes dot products on numbers in registers to measure the CPU's rate (this_cpu.h). Returns the
// number of floating point operations that it has executed.
double bf16_dot_loop(int64_t rounds);

}  // namespace heddle::ops
