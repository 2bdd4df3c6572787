// SPDX-License-Identifier: Apache-2.0
// row_dot: y[t, n] as a dot product along K of a row of x and a row of the weight, both read in
// place. Streams the weights once and converts 16-bit ones in registers. Decode steps use this
// kernel, and exact mode uses it for every T.
//
// Fixed order: an element is summed in two vectors of partial sums (K in steps of two vectors, the
// end padded with zeros), which are added, reduced lane by lane and added to the bias. Tiles of
// several rows and columns share loads but not sums, so an element's bits depend only on its row of
// x, its row of W and the instruction set: not on T, the other rows, the split into blocks or the
// threads.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

void row_dot(const Product& product, const Block& block);

// Products with quantised weights (quant/packed_rows.h) in fp32: a few rows of the weight at a time
// are dequantised to floats in the cache and multiplied there by row_dot(). The results are those
// of the dequantised matrix, bit for bit, as exact mode requires. Supports every format; reads the
// packed weight from memory once. panel_product() does the same for many rows. Needs 256 KB of
// stack.
void packed_row_dot(const Product& product, const Block& block);

}  // namespace heddle::ops
