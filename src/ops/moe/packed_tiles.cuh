// SPDX-License-Identifier: Apache-2.0
// The two products of routed_moe with quantised weights on tensor cores, for steps in which an
// expert has a row or some: codes are multiplied as in skinny_kernel.cuh, the sums run in its
// order.
//
// up: hidden[r] = f(x[token of r] W13_e^T); down: y[pair of r] = hidden[r] W2_e^T.
// Blocks of one blockIdx.x own a tile of up to 16 rows of one expert, whose x lies in shared
// memory; a group of four warps owns eight columns at a time: four of the gate and those of up that
// belong to them, or eight of H. Bytes: the chosen experts' codes once for each tile. Flops: 6 * R
// * I * H. Predicted for 64 and 256 tokens of the 80B model in fp8 on an H200: 430 and 620 us, of
// bytes 272 and 377. Measured: 556 and 757; in 4-bit integers 557 and 773, in MXFP4 699 and 994.
#pragma once

#include "ops/moe/expert_rows.cuh"
#include "quant/packed_rows.h"

namespace heddle::ops::packed_tiles {

inline constexpr int kTileRows = static_cast<int>(MoeDeviceScratch::kPackedTileRows);

// Whether the kernels read the weight: quantised in one part, E4M3 or integers in groups of a power
// of two of at least 64 columns or one for a row, or MXFP4; K a multiple of 64; and 16 rows of x of
// K numbers fit into a block's shared memory.
[[nodiscard]] bool fit(const CudaContext& context, const TensorView& weight);

// Products for tiles of up to kTileRows rows; y of up is bf16, of down fp32. Both weights have one
// code. `x`: bf16, 16-byte aligned. Errors: kDeviceLost.
Status multiply_up(CudaContext& context, const expert_rows::ProductParams& product,
                   const TensorView& x, const TensorView& weight, int64_t num_tiles);
Status multiply_down(CudaContext& context, const expert_rows::ProductParams& product,
                     const TensorView& x, const TensorView& weight, int64_t num_tiles);

}  // namespace heddle::ops::packed_tiles
