// SPDX-License-Identifier: Apache-2.0
// Large bf16 products by oneDNN, which uses matrix tiles (Intel AMX). Tiles multiply bf16 several
// times faster than any vector instruction, and the kernels of this folder do not use them. On CPUs
// without tiles panel_product is as fast and reads weights of every dtype in place, so oneDNN is
// not used.
//
// oneDNN runs single-threaded inside the pool's tasks. Fast mode only: the order of its sums is not
// specified.
//
// Threading: any number of threads on different rows. Primitives are created once per shape and
// thread and kept, at most kMaxDnnlShapes of them. A call also allocates some hundred bytes for its
// arguments and frees them.
#pragma once

#include <cstdint>

#include "ops/gemm/product.h"

namespace heddle::ops {

// Whether this build has oneDNN and this CPU multiplies bf16. On CPUs without tiles, tests run
// oneDNN's vector kernels instead.
[[nodiscard]] bool has_dnnl_products();

[[nodiscard]] bool dnnl_products_pay();  // has_dnnl_products() is true and the CPU has matrix tiles

// Whether oneDNN computes this kind of product at full speed: bf16 weights, many rows, dense memory
// for all operands, no bias, no gathered rows.
[[nodiscard]] bool dnnl_takes(const Product& product);

// Computes rows [row_begin, row_end) of y from x_bf16. Returns false, with y untouched, if oneDNN
// reports an error.
[[nodiscard]] bool dnnl_product(const Product& product, int64_t row_begin, int64_t row_end);

inline constexpr int64_t kMinDnnlRows = 32;
inline constexpr int64_t kMaxDnnlShapes = 256;

}  // namespace heddle::ops
