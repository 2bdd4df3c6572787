// SPDX-License-Identifier: Apache-2.0
// The experts of routed_moe on Hopper's tensor cores: for steps of many tokens in bf16. Rows of an
// expert are multiplied together, up to 192 at a time; weights stand on the side of a product that
// is padded to 64, tokens on the other, where a tile is padded to 32.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/moe/routed_moe.h"

namespace heddle::ops {

// Up to MoeDeviceScratch::tile_rows of one expert; none: not used by this routing, nor is any that
// follows.
struct ExpertTile {
  int32_t expert;
  int32_t first_row;  // among the rows sorted by expert
  int32_t num_rows;
  int32_t unused;
};

// With fewer tokens the weights of the chosen experts decide, which the plain launchers stream as
// well.
inline constexpr int64_t kSm90MinTokens = 32;

// Whether steps of at least kSm90MinTokens tokens take this form: Hopper, not in exact mode, bf16
// or quantised (device_scratch.h), widths of whole steps of 64, two at least. A product of H
// columns pads them to 256, one of I to 128.
[[nodiscard]] bool routed_moe_is_tiled(const CudaContext& context, const RoutedMoeShape& shape);

struct TiledExpertsArgs {
  const RoutedMoeArgs* moe = nullptr;
  TensorView x;                       // [T, H] the tokens of the pass
  int64_t num_rows = 0;               // R = T * A
  const int32_t* row_pair = nullptr;  // [R]: the (token, slot) of a row
  const ExpertTile* tiles = nullptr;
  int64_t num_tiles = 0;
  int64_t tile_rows = 0;         // MoeDeviceScratch::kFewTileRows or kManyTileRows
  int32_t* num_taken = nullptr;  // [2] scratch: zeros
  void* hidden = nullptr;        // [R, I] bf16: scratch
  void* down = nullptr;          // [R, H] bf16: W2 f(...) of each (token, slot)
};

// Computes both products, of rows of x where they lie. Floor: the weights of the chosen experts,
// once for each pass (3.2 GB at the width of the 80B model: 756 us on an H200), or 6 * R * I * H
// flops. Measured there with routing and combination: 0.56 ms for 64 tokens (floor 0.54), 0.85 for
// 2,048, 1.33 for 8,192, where both products move what they read from the L2 cache at 91 % of its
// rate: 5 bytes of rows for every 8 of weights.
Status run_tiled_experts(CudaContext& context, const TiledExpertsArgs& args);

}  // namespace heddle::ops
