// SPDX-License-Identifier: Apache-2.0
// panel_product: y[t, n] for many rows at once. A panel is 64 weight rows, converted to float32 and
// transposed into the cache, 256 elements of K at a time. Every row of x is multiplied by the panel
// from there: each weight is read and converted once for the whole block, and the inner loop
// consists of fused multiply-adds only.
//
// The panel (64 KB) is on the caller's stack. An element is summed along K in order, whatever the
// block, but in a different order than in row_dot(): fast mode only.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

// Columns of y in a panel. Work should be split into blocks of a multiple of these.
inline constexpr int64_t kPanelColumns = 64;

void panel_product(const Product& product, const Block& block);

// Fewest rows for which panel_product() is faster than row_dot() with this CPU's instructions; with
// fewer, packing costs more than it saves.
[[nodiscard]] int64_t panel_product_pays_from(int64_t K);

// For the bf16 kernels: packs 16-bit weights unchanged, in pairs along K. panel[i][c] (`width`
// pairs a row, a multiple of 16) becomes elements k + 2 i and k + 2 i + 1 of weight row column + c;
// zeros from `num_columns` columns and from `depth` elements on. CPUs with AVX-512 only.
void pack_pairs(const Product& product, int64_t column, int64_t num_columns, int64_t k,
                int64_t depth, int64_t width, uint32_t* panel);

}  // namespace heddle::ops
