// SPDX-License-Identifier: Apache-2.0
// Layout of the scratch memory of routed_moe on CUDA. The host does not know how many rows each
// expert gets, so the sizes suffice for any routing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/moe/routed_moe.h"
#include "ops/moe/routed_moe_sm90.h"

namespace heddle::ops {

// Which kernels multiply the tiles of an expert's rows.
enum class ExpertProducts {
  kRows,    // row products, for any weights (expert_rows.cuh)
  kPacked,  // quantised weights on tensor cores (packed_tiles.cuh)
  kTiled,   // dense weights on tensor cores (routed_moe_sm90.h)
};

struct MoeDeviceScratch {
  // Rows of an expert in a tile, which are multiplied together: in row products, in products of
  // quantised weights on tensor cores, and in dense products on tensor cores with few or many rows.
  // A dense tile should hold the rows of a typical expert: short tiles leave shared memory for more
  // pipeline stages.
  static constexpr int64_t kTileRows = 4;
  static constexpr int64_t kPackedTileRows = 16;
  static constexpr int64_t kFewTileRows = 64;
  static constexpr int64_t kManyTileRows = 192;
  // Most rows of an expert on average for short dense tiles.
  static constexpr int64_t kMeanOfFew = 44;

  // Number of (token, slot) pairs that a block sorts, in small and in large steps. A pair is
  // compared with all pairs before it in the block, and each block reads the counts of all others.
  static constexpr int64_t kFewSortPairs = 128;
  static constexpr int64_t kMostSortPairs = 512;

  // Most tokens of a pass; each pass reads the weights of all experts that its tokens chose. With
  // 512 experts that is some dozen rows for each expert, 160 on tensor cores; the rows of the
  // products stay below 200 and 420 MB at the widths of the 80B model.
  [[nodiscard]] static constexpr int64_t tokens_at_once(bool tiled) { return tiled ? 8192 : 2048; }

  // In long steps quantised experts are dequantised to bf16, some experts at a time, and multiplied
  // on tensor cores: as many as fit into kDenseBytes, at least one. With kMinDenseRows rows per
  // expert on average, reading and writing the bf16 weights takes less time than fp32
  // multiply-adds; with kMinDenseRowsOfPacked rows, less than widening the codes for each tile of
  // rows.
  static constexpr int64_t kDenseBytes = int64_t{192} << 20;
  static constexpr int64_t kMinDenseRows = 4;
  static constexpr int64_t kMinDenseRowsOfPacked = 32;

  // Whether T tokens are computed on tensor cores, if these support the shape (routed_moe_sm90.h).
  [[nodiscard]] static constexpr bool tiles_pay(int64_t T, const RoutedMoeShape& shape) {
    return T >= kSm90MinTokens &&
           (shape.weight != DType::kPacked || T * shape.A >= kMinDenseRows * shape.E);
  }

  int64_t dense_experts = 0;  // quantised experts that are dequantised at a time
  int64_t dense_rounds = 0;   // rounds until all experts were dequantised and multiplied
  int64_t tile_rows = 0;
  int64_t chunk_pairs = 0;
  int64_t num_tiles = 0;  // tiles that suffice for any routing of the pass's tokens

  // Offsets in bytes from the start, which is 128-byte aligned.
  int64_t experts;   // [T, A] i32: expert of each (token, slot) pair
  int64_t weights;   // [T, A] f32: weight of each (token, slot) pair
  int64_t counts;    // [chunks, E] i32: pairs of each chunk for each expert
  int64_t row_pair;  // [T * A] i32: the (token, slot) pair of each sorted row
  int64_t tiles;     // [num_tiles] of four i32: an ExpertTile
  // [2] i32, on tensor cores: for each of the two products, the next work that a block takes.
  int64_t taken;
  int64_t round_tiles;  // [dense_rounds, num_tiles] like `tiles`: the tiles of each round's experts
  int64_t round_taken;  // [dense_rounds, 2] like `taken`
  int64_t dense;        // [dense_experts] dequantised w13, then w2, in bf16
  int64_t hidden;       // [T * A, I] of x's dtype: results of the first product
  // [T * A, H] results of the second product by (token, slot): f32, on tensor cores x's dtype.
  int64_t down;
  int64_t total = 0;

  // Computes the offsets. The scratch for kRows also suffices for kPacked.
  MoeDeviceScratch(int64_t max_T, const RoutedMoeShape& shape, ExpertProducts products)
      : tile_rows(products == ExpertProducts::kPacked ? kPackedTileRows : kTileRows) {
    const bool tiled = products == ExpertProducts::kTiled;
    const int64_t R = std::min(max_T, tokens_at_once(tiled)) * shape.A;
    const int64_t few_rows = std::min(R, kMeanOfFew * shape.E);
    if (tiled) tile_rows = R <= few_rows ? kFewTileRows : kManyTileRows;
    // Upper bound of the sum over experts of rows / rows_of_tile, rounded up: at most min(E, R)
    // experts have rows.
    const auto tiles_of = [&shape](int64_t rows, int64_t rows_of_tile) {
      return (rows + (rows_of_tile - 1) * std::min(shape.E, rows)) / rows_of_tile;
    };
    num_tiles = tiles_of(R, tile_rows);
    const auto place = [this](int64_t bytes) {
      const int64_t here = total;
      total += (bytes + 127) / 128 * 128;
      return here;
    };
    experts = place(R * 4);
    weights = place(R * 4);
    constexpr int64_t kFewPairs = 4096;
    chunk_pairs = R <= kFewPairs ? kFewSortPairs : kMostSortPairs;
    const int64_t few_chunks = (std::min(R, kFewPairs) + kFewSortPairs - 1) / kFewSortPairs;
    const int64_t chunks = (R + kMostSortPairs - 1) / kMostSortPairs;
    // The number of chunks grows with R.
    counts = place(std::max(few_chunks, chunks) * shape.E * 4);
    row_pair = place(R * 4);
    const int64_t few_tiles =
        // Tiles of a step that is small enough for short tiles.
        tiled ? tiles_of(few_rows, kFewTileRows) : 0;
    tiles = place(std::max(num_tiles, few_tiles) * 16);
    taken = place(8);
    if (tiled && shape.weight == DType::kPacked) {
      const int64_t bytes_each = 6 * shape.I * shape.H;
      dense_experts = std::clamp<int64_t>(kDenseBytes / bytes_each, 1, shape.E);
      dense_rounds = (shape.E + dense_experts - 1) / dense_experts;
      round_tiles = place(dense_rounds * std::max(num_tiles, few_tiles) * 16);
      round_taken = place(dense_rounds * 8);
      dense = place(dense_experts * bytes_each);
    }
    hidden = place(bytes_of(shape.x, R * shape.I));
    down = place(bytes_of(tiled ? shape.x : DType::kF32, R * shape.H));
    total += 128;  // room to align the start
  }
};

}  // namespace heddle::ops
