// SPDX-License-Identifier: Apache-2.0
// Products with quantised weights (quant/packed_rows.h) in fp32: rows of the weight are turned into
// floats a few at a time, in cache, and multiplied there by row_dot (row_dot.h). The results are
// those of the dequantised matrix, bit for bit, and so exact mode's. Every format; reads the packed
// form from memory once. panel_product() does the same for many rows.
//
// Threading: any number of threads on different blocks. Allocates nothing; 256 KB of stack.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

void packed_row_dot(const Product& product, const Block& block);

}  // namespace heddle::ops
