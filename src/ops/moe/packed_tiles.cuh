// SPDX-License-Identifier: Apache-2.0
// The two products of routed_moe with quantised weights on tensor cores, for steps in which experts
// have one or a few rows. Codes are multiplied and summed as in skinny_kernel.cuh.
//
// up: hidden[r] = f(x[token of r] W13_e^T); down: y[pair of r] = hidden[r] W2_e^T. All blocks with
// the same blockIdx.x compute a tile of up to 16 rows of one expert, whose x is in shared memory. A
// group of four warps computes eight columns at a time: four of the gate and the corresponding four
// of up, or eight of H. Bytes: the chosen experts' codes once for each tile. Flops: 6 * R * I * H.
// Predicted for 64 and 256 tokens of the 80B model in fp8 on an H200: 430 and 620 us, 272 and 377
// of them for bytes. Measured: 556 and 757; in 4-bit integers 557 and 773, in MXFP4 699 and 994.
#pragma once

#include "ops/moe/expert_rows.cuh"
#include "quant/packed_rows.h"

namespace heddle::ops::packed_tiles {

inline constexpr int kTileRows = static_cast<int>(MoeDeviceScratch::kPackedTileRows);

// Whether the kernels support the weight: quantised in one part, E4M3 or integers in groups of a
// power of two of at least 64 columns or one group for a row, or MXFP4; K a multiple of 64; and 16
// rows of x of K numbers fit into a block's shared memory.
[[nodiscard]] bool fit(const CudaContext& context, const TensorView& weight);

// Enqueue the products of tiles of up to kTileRows rows; y of up is bf16, y of down fp32. Both
// weights must have the same code. `x` is bf16 and 16-byte aligned. Errors: kDeviceLost.
Status multiply_up(CudaContext& context, const expert_rows::ProductParams& product,
                   const TensorView& x, const TensorView& weight, int64_t num_tiles);
Status multiply_down(CudaContext& context, const expert_rows::ProductParams& product,
                     const TensorView& x, const TensorView& weight, int64_t num_tiles);

}  // namespace heddle::ops::packed_tiles
