// SPDX-License-Identifier: Apache-2.0
// RowScratch: the memory through which the passes of sample_rows over a row hand results to later
// passes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/compiler.h"

namespace heddle::ops {

inline constexpr int kTileTokens = 256;

// The level of a token is the distance of its logit from the row's best, after the temperature, in
// eighths of a natural logarithm. Tokens from kWeightlessLevel on weigh nothing. Weights are summed
// by level for the first kMassLevels levels only: summing all of them takes longer than the extra
// passes over the few rows that need more levels.
inline constexpr int kLevelsPerLog = 8;
inline constexpr int kWeightlessLevel = 255;
inline constexpr int kMassLevels = 96;

struct RowScratch {
  uint64_t* tile_sums;     // [tiles]: sum of the weights of each tile
  uint64_t* level_masses;  // [kMassLevels]: sum of the weights at each level
  uint32_t* level_counts;  // [kMassLevels]: number of tokens at each level
  float* tile_max;         // [tiles]: largest logit of each tile; NaN if a logit is NaN
  // [tiles]: approximate sum of the weights, in units of the weight of the tile's best token.
  float* tile_shares;

  [[nodiscard]] HEDDLE_HOST_DEVICE static constexpr int64_t tiles_of(int64_t vocab_size) {
    return (vocab_size + kTileTokens - 1) / kTileTokens;
  }

  // Bytes for a row, a multiple of 8.
  [[nodiscard]] HEDDLE_HOST_DEVICE static constexpr int64_t bytes(int64_t vocab_size) {
    const int64_t tiles = tiles_of(vocab_size);
    return 8 * (tiles + kMassLevels) + 4 * (kMassLevels + 2 * tiles);
  }

  [[nodiscard]] HEDDLE_HOST_DEVICE static RowScratch of(std::byte* workspace, int64_t row,
                                                        int64_t vocab_size) {
    const int64_t tiles = tiles_of(vocab_size);
    RowScratch scratch{};
    scratch.tile_sums = reinterpret_cast<uint64_t*>(workspace + row * bytes(vocab_size));
    scratch.level_masses = scratch.tile_sums + tiles;
    scratch.level_counts = reinterpret_cast<uint32_t*>(scratch.level_masses + kMassLevels);
    scratch.tile_max = reinterpret_cast<float*>(scratch.level_counts + kMassLevels);
    scratch.tile_shares = scratch.tile_max + tiles;
    return scratch;
  }
};

}  // namespace heddle::ops
