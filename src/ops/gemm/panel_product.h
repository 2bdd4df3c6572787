// SPDX-License-Identifier: Apache-2.0
// panel_product: y[t, n] for many rows at once. A panel of 64 weight rows is converted to float32
// and transposed into cache, 256 of K at a time, and every row of x multiplies it from there: each
// weight is read and converted once for the whole block, and the inner loop is nothing but fused
// multiply-adds.
//
// The panel (64 KB) lies on the caller's stack. An element is summed along K in order, whatever the
// block, but in another order than row_dot's: fast mode only.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

// Columns of a panel: split work into blocks of a multiple of these.
inline constexpr int64_t kPanelColumns = 64;

void panel_product(const Product& product, const Block& block);

// From how many rows on it is faster than row_dot with this CPU's instructions: packing has to pay.
[[nodiscard]] int64_t panel_product_pays_from(int64_t K);

// For the bf16 kernels: 16-bit weights as they are, in pairs along K. panel[i][c] (`width` pairs a
// row, a multiple of 16) becomes the pair (2 i, 2 i + 1) after `k` of weight row column + c; zeros
// beyond `num_columns` and beyond the `depth` numbers. CPUs with AVX-512 only.
void pack_pairs(const Product& product, int64_t column, int64_t num_columns, int64_t k,
                int64_t depth, int64_t width, uint32_t* panel);

}  // namespace heddle::ops
