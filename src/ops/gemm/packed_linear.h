// SPDX-License-Identifier: Apache-2.0
// linear on CUDA with weights whose rows are quantised, all of them or some: one product a part
// (quant/packed_rows.h).
//
// In the default mode skinny_products() has most products of up to kSkinnyRows rows; here are the
// others.
//
// Exact mode, and up to kSkinnyRows rows in the default one: row_products() over the packed rows,
// whose numbers are never rounded. x has its own dtype. So an element has the bits that a dense
// fp32 weight of the same numbers gives it, and a row's bits do not depend on the other rows.
// Bytes: the codes and scales once; flops: 2 * T * N * K fp32, and some 3 instructions a number for
// every four rows. Measured on an H200 for 12,288 x 2,048 in fp8 with 1, 4 and 16 rows: 23, 42 and
// 117 us (bytes: 6).
//
// More rows in the default mode: a slice of the weight becomes numbers of x's dtype in the
// workspace, 32 MiB at most, which linear() multiplies like any dense weight; then the next slice.
// The numbers are those that a weight dequantised at load has. Bytes beside the product's own:
// 1 or 0.5 a number read and 2 written, 18 us for 12,288 x 2,048 in fp8; 64 rows take 42 us there
// (bf16: 16), 8,192 rows 530 (bf16: 537).
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/gemm/linear.h"
#include "ops/gemm/skinny_product.h"
#include "quant/packed_rows.h"

namespace heddle::ops {

inline constexpr int64_t kDequantisedBytes = int64_t{32} << 20;
inline constexpr int64_t kDequantisedAlignment = 256;

// Scratch of linear for up to max_T rows in the default mode.
[[nodiscard]] constexpr int64_t packed_linear_workspace_bytes(int64_t max_T, int64_t K, int64_t N) {
  if (max_T <= kSkinnyRows) return 0;
  return std::min(kDequantisedBytes, 4 * N * K) + kDequantisedAlignment;
}

// args.weight is packed; args already checked. Error: kDeviceLost.
Status packed_linear(CudaContext& context, const LinearArgs& args);

// Columns [first, first + count) of y, whose weight, of as many rows, is `weight`.
[[nodiscard]] LinearArgs columns_of(const LinearArgs& args, int64_t first,
                                    const TensorView& weight);

// The same for a plain args.weight.
[[nodiscard]] LinearArgs plain_columns(const LinearArgs& args, int64_t first, int64_t count);

// Enqueues y[n] = dequantised row n of the weight, rounded to y's dtype. y [num_rows, K], fp32,
// bf16 or fp16.
Status dequantise_rows(CudaContext& context, const quant::PackedRows& rows,
                       const MutableTensorView& y);

}  // namespace heddle::ops
