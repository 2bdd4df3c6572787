// SPDX-License-Identifier: Apache-2.0
// The experts of routed_moe on Hopper's tensor cores, for steps of many tokens in bf16. Rows of an
// expert are multiplied together, up to 192 at a time. Weights are the operand whose size is padded
// to 64; tokens are the other operand, where a tile is padded to 32.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/moe/routed_moe.h"

namespace heddle::ops {

// Up to MoeDeviceScratch::tile_rows rows of one expert. A tile without rows is not used by this
// routing, and neither are all tiles after it.
struct ExpertTile {
  int32_t expert;
  int32_t first_row;  // first row of the tile among the rows sorted by expert
  int32_t num_rows;
  int32_t unused;
};

// Fewest tokens of a step for this form. With fewer, reading the weights of the chosen experts
// takes most of the time, and the other kernels stream them equally fast.
inline constexpr int64_t kSm90MinTokens = 32;

// Whether steps of at least kSm90MinTokens tokens use this form: Hopper, not in exact mode, weights
// in bf16 or quantised (device_scratch.h), widths that are multiples of 64 and at least 128. A
// product with H columns pads them to 256, one with I columns to 128.
[[nodiscard]] bool routed_moe_is_tiled(const CudaContext& context, const RoutedMoeShape& shape);

struct TiledExpertsArgs {
  const RoutedMoeArgs* moe = nullptr;
  TensorView x;                       // [T, H] the tokens of the pass
  int64_t num_rows = 0;               // R = T * A, rows of all experts
  const int32_t* row_pair = nullptr;  // [R]: the (token, slot) pair of each row
  const ExpertTile* tiles = nullptr;
  int64_t num_tiles = 0;
  int64_t tile_rows = 0;         // rows of a tile: MoeDeviceScratch::kFewTileRows or kManyTileRows
  int32_t* num_taken = nullptr;  // [2] scratch, zero before the launch
  void* hidden = nullptr;        // [R, I] bf16: scratch for the activations
  void* down = nullptr;          // [R, H] bf16: W2 f(...) of each (token, slot) pair
};

// Computes both products; rows of x are read without sorting them first. Floor: the weights of the
// chosen experts, once for each pass (3.2 GB at the width of the 80B model: 756 us on an H200), or
// 6 * R * I * H flops. Measured there with routing and combination: 0.56 ms for 64 tokens (floor
// 0.54), 0.85 for 2,048, 1.33 for 8,192, where both products read from the L2 cache at 91 % of its
// rate: 5 bytes of rows for every 8 of weights.
Status run_tiled_experts(CudaContext& context, const TiledExpertsArgs& args);

}  // namespace heddle::ops
