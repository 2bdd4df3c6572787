// SPDX-License-Identifier: Apache-2.0
// RowScratch: where the passes of sample_rows leave what they learn of a row for the next one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/compiler.h"

namespace heddle::ops {

inline constexpr int kTileTokens = 256;

// The distance of a logit from the row's best, in eighths of a natural logarithm after the
// temperature, is its level. From kWeightlessLevel on a token weighs nothing. Weights by level are
// summed for the first kMassLevels alone: adding up those of all tokens takes longer than the
// passes over the few rows that need more.
inline constexpr int kLevelsPerLog = 8;
inline constexpr int kWeightlessLevel = 255;
inline constexpr int kMassLevels = 96;

struct RowScratch {
  uint64_t* tile_sums;     // [tiles]  of the weights
  uint64_t* level_masses;  // [kMassLevels]
  uint32_t* level_counts;  // [kMassLevels]
  float* tile_max;         // [tiles]  NaN where a logit is
  float* tile_shares;      // [tiles]  of the weights, about, in those of the tile's best token

  [[nodiscard]] HEDDLE_HOST_DEVICE static constexpr int64_t tiles_of(int64_t vocab_size) {
    return (vocab_size + kTileTokens - 1) / kTileTokens;
  }

  // A multiple of 8.
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
