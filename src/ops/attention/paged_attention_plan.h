// SPDX-License-Identifier: Apache-2.0
// How attention in splits (paged_attention_split.h) divides the tokens of a step among blocks.
//
// A unit is the tokens that eight rows of one sequence see in one kv head. The units of a step form
// a line of tiles, sequence by sequence. The line is cut into shares of equal length, give or take
// a tile, and each block computes one share. A unit that lies in several shares has a part in each
// of them; its parts are joined in the order of the shares.
//
// Keys of the same token lie side by side for all kv heads, and memory is faster where they are
// read at the same time. Several heads therefore have the same line, and a share is computed by as
// many blocks, one for each of these heads (heads_on_a_line).
//
// Each unit begins with kUnitCost empty tiles on the line. They stand for the time that a block
// needs to begin and to finish a unit, whatever its length.
//
// Where whole units keep the blocks busy, each unit counts as one tile: none is cut, and there is
// nothing to join.
//
// Threading: pure functions, the same on the host and on the device.
#pragma once

#include <cstdint>

#include "core/compiler.h"

namespace heddle::ops {

inline constexpr int kTileTokens = 16;  // tokens that a warp multiplies at a time
inline constexpr int kUnitCost = 2;     // tiles
inline constexpr int kShortShare = 4;   // tiles: one for each warp of a block

// The tokens that any new row of a sequence sees, and so every unit of the sequence.
struct SplitExtent {
  int num_tokens = 0;  // new ones; 0: the sequence is not computed here
  int begin = 0;
  int end = 0;

  // Tiles begin at multiples of kTileTokens, so that the first and the last may be partial.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int num_tiles() const {
    return (end + kTileTokens - 1) / kTileTokens - begin / kTileTokens;
  }
};

// The units of a step.
struct SplitLoad {
  int length = 0;  // tiles of all units, empty ones included
  int num_units = 0;
  int longest = 0;  // tiles of the longest unit

  // Adds a sequence with `num_units_of_sequence` units.
  HEDDLE_HOST_DEVICE constexpr void add(const SplitExtent& extent, int num_units_of_sequence) {
    if (num_units_of_sequence == 0) return;
    const int tiles = kUnitCost + extent.num_tiles();
    add({.length = tiles * num_units_of_sequence,
         .num_units = num_units_of_sequence,
         .longest = tiles});
  }

  HEDDLE_HOST_DEVICE constexpr void add(const SplitLoad& other) {
    length += other.length;
    num_units += other.num_units;
    if (longest < other.longest) longest = other.longest;
  }
};

// The cut of the line into shares: the first `num_longer` have length + 1 tiles, the others
// `length`.
struct SplitShares {
  int num_shares = 1;
  int length = 0;
  int num_longer = 0;
  bool whole = false;  // no unit is cut: each is one tile long

  // Units stay whole where they keep the blocks busy to eight ninths. Else there are `most` shares,
  // or fewer where these suffice for shares of at most kShortShare.
  [[nodiscard]] HEDDLE_HOST_DEVICE static constexpr SplitShares of(const SplitLoad& load,
                                                                   int most) {
    const int turns = (load.num_units + most - 1) / most;
    const bool whole = int64_t{turns} * most * load.longest * 8 <= int64_t{load.length} * 9;
    const int length = whole ? load.num_units : load.length;
    const int wanted = whole ? length : (length + kShortShare - 1) / kShortShare;
    const int num_shares = wanted < 1 ? 1 : wanted < most ? wanted : most;
    return {.num_shares = num_shares,
            .length = length / num_shares,
            .num_longer = length % num_shares,
            .whole = whole};
  }

  // Length of each unit of a sequence.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int unit_length(const SplitExtent& extent) const {
    return whole ? 1 : kUnitCost + extent.num_tiles();
  }

  // First tile of a share; begin_of(num_shares) is the end of the last one.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int begin_of(int share) const {
    return share * length + (share < num_longer ? share : num_longer);
  }

  // The share of tile `at` of the line, which is not empty.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int share_of(int at) const {
    const int end = num_longer * (length + 1);  // end of the longer shares, which come first
    return at < end ? at / (length + 1) : num_longer + (at - end) / length;
  }
};

// A unit on the line.
struct SplitUnit {
  int start = 0;
  int length = 0;
  int num_tiles = 0;

  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int end() const { return start + length; }

  // Tiles of its tokens that lie before `at` of the line.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int tiles_before(int at) const {
    if (at >= end()) return num_tiles;
    return at > start + kUnitCost ? at - start - kUnitCost : 0;
  }

  // The shares that have tiles of its tokens. Those between have some, too.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int first_share(const SplitShares& shares) const {
    return shares.share_of(shares.whole ? start : start + kUnitCost);
  }

  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int last_share(const SplitShares& shares) const {
    return shares.share_of(end() - 1);
  }
};

// How many of the kv heads have the same line: the most that divide them evenly and leave at most
// one of 32 blocks without work.
[[nodiscard]] constexpr int heads_on_a_line(int num_kv_heads, int num_blocks) {
  for (int heads = num_kv_heads; heads > 1; --heads) {
    if (num_kv_heads % heads == 0 && num_blocks % heads * 32 <= num_blocks && heads <= num_blocks) {
      return heads;
    }
  }
  return 1;
}

// Index of a share's part of a unit that lies in several shares. A share has at most two such
// parts: of a unit that began in an earlier share, and of one that continues in the next.
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr int split_part(int share, bool begins_here) {
  return 2 * share + (begins_here ? 1 : 0);
}

}  // namespace heddle::ops
