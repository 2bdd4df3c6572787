// SPDX-License-Identifier: Apache-2.0
// Large bf16 products by oneDNN, which uses matrix tiles (Intel AMX): they multiply bf16 several
// times faster than any vector instruction, and our own kernels do not use them. On other CPUs
// panel_product is as fast and reads weights of every dtype in place, so oneDNN is not asked.
//
// oneDNN runs single-threaded inside the pool's tasks. Fast mode only: it sums in an order of its
// own.
//
// Threading: any number of threads on different rows. Primitives are created once per shape and
// thread and kept, at most kMaxDnnlShapes of them; a call allocates some hundred bytes beside them
// for its arguments, and frees them.
#pragma once

#include <cstdint>

#include "ops/gemm/product.h"

namespace heddle::ops {

// Whether this build has oneDNN and this CPU multiplies bf16: where it has no tiles, oneDNN's
// vector kernels take their place in tests.
[[nodiscard]] bool has_dnnl_products();

[[nodiscard]] bool dnnl_products_pay();  // has_dnnl_products(), and the CPU has matrix tiles

// Whether the product is of a form oneDNN computes at full speed: bf16 weights, many rows,
// everything dense, no bias, no gathered rows.
[[nodiscard]] bool dnnl_takes(const Product& product);

// Rows [row_begin, row_end) of y from x_bf16. False, with y untouched, when oneDNN refuses.
[[nodiscard]] bool dnnl_product(const Product& product, int64_t row_begin, int64_t row_end);

inline constexpr int64_t kMinDnnlRows = 32;
inline constexpr int64_t kMaxDnnlShapes = 256;

}  // namespace heddle::ops
