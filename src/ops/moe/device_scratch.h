// SPDX-License-Identifier: Apache-2.0
// Where the scratch of routed_moe lies on CUDA, whose launches cannot ask how many rows an expert
// got: sizes that hold for any routing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/moe/routed_moe.h"
#include "ops/moe/routed_moe_sm90.h"

namespace heddle::ops {

// The kernels that multiply tiles of an expert's rows.
enum class ExpertProducts {
  kRows,    // row products, of any weights (expert_rows.cuh)
  kPacked,  // codes on tensor cores (packed_tiles.cuh)
  kTiled,   // dense numbers on tensor cores (routed_moe_sm90.h)
};

struct MoeDeviceScratch {
  // Rows of an expert that are multiplied together: by row products, by those of codes, and on
  // tensor cores,
  // where one tile should hold what the usual expert has: short tiles leave memory for more stages.
  static constexpr int64_t kTileRows = 4;
  static constexpr int64_t kPackedTileRows = 16;
  static constexpr int64_t kFewTileRows = 64;
  static constexpr int64_t kManyTileRows = 192;
  static constexpr int64_t kMeanOfFew = 44;  // rows of an expert, at most, for short tiles

  // (token, slot) pairs that a block sorts: a pair is compared with those before it, and a block
  // reads the counts of all others.
  static constexpr int64_t kFewSortPairs = 128;
  static constexpr int64_t kMostSortPairs = 512;

  // Tokens of a pass, which reads the weights of all experts that it meets: some dozen rows for
  // each of 512 experts, 160 on tensor cores, and rows of the products that stay below 200 and 420
  // MB at the widths of the 80B model.
  [[nodiscard]] static constexpr int64_t tokens_at_once(bool tiled) { return tiled ? 8192 : 2048; }

  // Quantised experts of long steps are multiplied on tensor cores, some at a time, as dense bf16:
  // in so many bytes, or those of one expert. It pays where the experts of a pass have so many rows
  // on average: reading and writing their numbers then takes less time than fp32 multiply-adds, or
  // than widening the codes for each tile of rows.
  static constexpr int64_t kDenseBytes = int64_t{192} << 20;
  static constexpr int64_t kMinDenseRows = 4;
  static constexpr int64_t kMinDenseRowsOfPacked = 32;

  // Whether T tokens go to the tensor cores, where these take the shape (routed_moe_sm90.h).
  [[nodiscard]] static constexpr bool tiles_pay(int64_t T, const RoutedMoeShape& shape) {
    return T >= kSm90MinTokens &&
           (shape.weight != DType::kPacked || T * shape.A >= kMinDenseRows * shape.E);
  }

  int64_t dense_experts = 0;  // quantised experts that are dequantised at a time
  int64_t dense_rounds = 0;   // until all were
  int64_t tile_rows = 0;
  int64_t chunk_pairs = 0;
  int64_t num_tiles = 0;  // enough for any routing of the pass's tokens

  // Offsets in bytes, from a start on 128 bytes.
  int64_t experts;      // [T, A] i32
  int64_t weights;      // [T, A] f32
  int64_t counts;       // [chunks, E] i32: pairs of each chunk for each expert
  int64_t row_pair;     // [T * A] i32: which (token, slot) a row is of
  int64_t tiles;        // [num_tiles] of four i32
  int64_t taken;        // [2] i32: counters of what blocks of both products took, on tensor cores
  int64_t round_tiles;  // [dense_rounds, num_tiles] as tiles: those of each round's experts
  int64_t round_taken;  // [dense_rounds, 2] as taken
  int64_t dense;        // [dense_experts] of w13, then of w2, bf16
  int64_t hidden;       // [T * A, I] as x
  int64_t down;         // [T * A, H] by (token, slot), f32, on tensor cores as x
  int64_t total = 0;

  // The scratch for kRows also suffices for kPacked.
  MoeDeviceScratch(int64_t max_T, const RoutedMoeShape& shape, ExpertProducts products)
      : tile_rows(products == ExpertProducts::kPacked ? kPackedTileRows : kTileRows) {
    const bool tiled = products == ExpertProducts::kTiled;
    const int64_t R = std::min(max_T, tokens_at_once(tiled)) * shape.A;
    const int64_t few_rows = std::min(R, kMeanOfFew * shape.E);
    if (tiled) tile_rows = R <= few_rows ? kFewTileRows : kManyTileRows;
    // The sum over experts of their rows / tile_rows, rounded up, of which at most min(E, R) have
    // any.
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
    counts = place(std::max(few_chunks, chunks) * shape.E * 4);  // grows with R
    row_pair = place(R * 4);
    const int64_t few_tiles =
        tiled ? tiles_of(few_rows, kFewTileRows) : 0;  // tiles of a small step
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
    total += 128;  // alignment of the start
  }
};

}  // namespace heddle::ops
