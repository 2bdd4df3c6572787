// SPDX-License-Identifier: Apache-2.0
// row_dot: y[t, n] as a dot product along K of two rows as they lie in memory. Streams the weights
// once, in place, converting 16-bit ones in registers: the kernel of decode, and of exact mode for
// every T.
//
// Fixed order: an element is summed in two vectors of partial sums (K steps of two vectors, a tail
// padded with zeros), which are added, folded lane by lane and added to the bias. Tiles of several
// rows and columns share loads, never sums, so an element's bits depend on its row of x, its row of
// W and the instruction set alone: not on T, the neighbours, the split into blocks, or the threads.
//
// Threading: any number of threads on different blocks. Allocates nothing.
#pragma once

#include "ops/gemm/product.h"

namespace heddle::ops {

void row_dot(const Product& product, const Block& block);

// Products with quantised weights (quant/packed_rows.h) in fp32: rows of the weight are turned into
// floats a few at a time, in cache, and multiplied there by row_dot(). The results are
// those of the dequantised matrix, bit for bit, and so exact mode's. Every format; reads the packed
// form from memory once. panel_product() does the same for many rows.
// 256 KB of stack.
void packed_row_dot(const Product& product, const Block& block);

}  // namespace heddle::ops
