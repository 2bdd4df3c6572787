// SPDX-License-Identifier: Apache-2.0
// linear on CUDA with weights whose rows are quantised, all or some of them: one product for each
// part of the weight (quant/packed_rows.h).
//
// In the default mode skinny_products() computes most products of up to kSkinnyRows rows. The
// others are computed here in one of two ways.
//
// Exact mode, and up to kSkinnyRows rows in the default mode: row_products() over the packed rows,
// whose dequantised numbers are never rounded; x keeps its dtype. So an element has the same bits
// as with a dense fp32 weight of the same numbers, and a row's bits do not depend on the other
// rows. Bytes: the codes and scales once; flops: 2 * T * N * K fp32, and some 3 instructions per
// weight for every four rows. Measured on an H200 for 12,288 x 2,048 in fp8 with 1, 4 and 16 rows:
// 23, 42 and 117 us (the bytes alone: 6).
//
// More rows in the default mode: a slice of the weight is dequantised to x's dtype in the
// workspace, at most 32 MiB, and multiplied by linear() like a dense weight; then the next slice.
// The numbers are those of a weight that is dequantised at load. Bytes in addition to the product:
// 1 or 0.5 per weight read and 2 written, 18 us for 12,288 x 2,048 in fp8. 64 rows take 42 us there
// (bf16 weights: 16), 8,192 rows 530 (bf16: 537).
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/gemm/linear.h"
#include "ops/gemm/skinny_product.h"
#include "quant/packed_rows.h"

namespace heddle::ops {

inline constexpr int64_t kDequantisedBytes = int64_t{32} << 20;
inline constexpr int64_t kDequantisedAlignment = 256;

// Bytes of workspace of linear() for up to max_T rows in the default mode.
[[nodiscard]] constexpr int64_t packed_linear_workspace_bytes(int64_t max_T, int64_t K, int64_t N) {
  if (max_T <= kSkinnyRows) return 0;
  return std::min(kDequantisedBytes, 4 * N * K) + kDequantisedAlignment;
}

// args.weight is packed, and args must have been checked. Error: kDeviceLost.
Status packed_linear(CudaContext& context, const LinearArgs& args);

// The arguments for columns [first, first + count) of y; `weight` has the `count` weight rows for
// them.
[[nodiscard]] LinearArgs columns_of(const LinearArgs& args, int64_t first,
                                    const TensorView& weight);

// As columns_of(), with the weight rows taken from a plain args.weight.
[[nodiscard]] LinearArgs plain_columns(const LinearArgs& args, int64_t first, int64_t count);

// Enqueues y[n] = dequantised row n of the weight, rounded to y's dtype. y is [num_rows, K] in
// fp32, bf16 or fp16.
Status dequantise_rows(CudaContext& context, const quant::PackedRows& rows,
                       const MutableTensorView& y);

}  // namespace heddle::ops
