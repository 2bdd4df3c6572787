// SPDX-License-Identifier: Apache-2.0
// Products of up to four rows with bf16 weights on CUDA, at the speed of memory: the projections of
// a decode step of few sequences. Sums run in another order than those of row_products(), so fast
// mode only; a row's bits do not depend on the other rows.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/gemm/linear.h"

namespace heddle::ops {

inline constexpr int64_t kSkinnyRows = 4;

// Whether the arguments have this form: up to kSkinnyRows rows of bf16, K a multiple of 256 up to
// 8,192, rows on 16 bytes.
[[nodiscard]] bool skinny_product_fits(const CudaContext& context, const LinearArgs& args);

// As linear(), but weights are read before the kernel ahead has ended: none may be written by it.
// Floor: the weights' bytes, 12 us for 12,288 x 2,048 at 4.2 TB/s. Measured on an H200: 14.8 us,
// and 145 for a head of 151,936 x 2,048 (148).
Status skinny_product(CudaContext& context, const LinearArgs& args);

}  // namespace heddle::ops
