// SPDX-License-Identifier: Apache-2.0
// Products of few rows with E4M3 weights: codes are read packed, widened to fp32 in registers and
// multiplied by x in fp32; the scale is applied to the sum of its group. Only the sums are rounded,
// so fp32 runs use it, too; exact mode uses packed_row_dot() instead.
//
// Supports scale groups of a multiple of 32 columns, or one group for a whole row. Allocates
// nothing.
//
// Threading: any number of threads on different blocks.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

[[nodiscard]] bool fp8_dot_takes(const quant::PackedRows& rows);

void fp8_dot(const Product& product, const Block& block);

}  // namespace heddle::ops
