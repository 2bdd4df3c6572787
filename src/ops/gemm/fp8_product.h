// SPDX-License-Identifier: Apache-2.0
// Products of few rows with E4M3 weights: read packed, widened to fp32 in registers, multiplied by
// x in fp32, with the scale applied to a group's sum. Nothing is rounded but those sums, so this
// also serves fp32 runs; exact mode has packed_row_dot().
//
// Serves groups of a multiple of 32 columns, or one group a row. Allocates nothing.
//
// Threading: any number of threads on different blocks.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

[[nodiscard]] bool fp8_dot_takes(const quant::PackedRows& rows);

void fp8_dot(const Product& product, const Block& block);

}  // namespace heddle::ops
