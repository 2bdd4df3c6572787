// SPDX-License-Identifier: Apache-2.0
// How split attention (paged_attention_split.h) divides the tokens of a step among thread blocks.
//
// A unit is the tokens that eight rows of one sequence attend to in one kv head. A tile is
// kTileTokens tokens. The tiles of all units of a step are numbered consecutively, sequence by
// sequence; this list is called the line. The line is cut into shares of equal length (one tile
// more or less), and each block computes one share. A unit that extends over several shares has a
// part in each of them; its parts are joined in the order of the shares.
//
// The keys of one token are adjacent in memory for all kv heads, and reads are faster when they
// happen at the same time. Several heads therefore share a line, and each share is computed by as
// many blocks, one for each of these heads (heads_on_a_line).
//
// Each unit begins with kUnitCost empty tiles on the line. They stand for the time that a block
// needs to begin and to finish a unit, whatever its length.
//
// Where whole units keep the blocks busy, each unit counts as one tile: no unit is cut, and no
// results need to be joined.
// nothing to join.
//
// Threading: pure functions, the same on the host and on the device.
#pragma once

#include <cstdint>

#include "core/compiler.h"

namespace heddle::ops {

inline constexpr int kTileTokens = 16;  // tokens that a warp multiplies at a time
inline constexpr int kUnitCost = 2;     // empty tiles that stand for a unit's fixed cost
inline constexpr int kShortShare = 4;   // tiles of a short share: one for each warp of a block

// The tokens that the new rows of a sequence attend to, as one range: the same for all of its
// units.
struct SplitExtent {
  int num_tokens = 0;  // number of new tokens; 0: the split kernel does not compute this sequence
  int begin = 0;
  int end = 0;

  // Number of tiles that the range touches. Tiles begin at multiples of kTileTokens, so that the
  // first and the last may be partial.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int num_tiles() const {
    return (end + kTileTokens - 1) / kTileTokens - begin / kTileTokens;
  }
};

// Number and length of all units of a step.
struct SplitLoad {
  int length = 0;  // tiles of all units, the empty ones included
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

// How the line is cut into shares: the first `num_longer` shares have length + 1 tiles, the others
// `length`.
struct SplitShares {
  int num_shares = 1;
  int length = 0;
  int num_longer = 0;
  bool whole = false;  // true: each unit counts as one tile, so that none is cut

  // Units stay whole if they keep at least eight ninths of the blocks busy. Else there are `most`
  // shares, or fewer if these suffice for shares of at most kShortShare tiles.
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

  // Number of tiles that each unit of a sequence has on the line.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int unit_length(const SplitExtent& extent) const {
    return whole ? 1 : kUnitCost + extent.num_tiles();
  }

  // Index of the first tile of a share; begin_of(num_shares) is the end of the last share.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int begin_of(int share) const {
    return share * length + (share < num_longer ? share : num_longer);
  }

  // The share that contains tile `at` of the line; the line must not be empty.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int share_of(int at) const {
    const int end = num_longer * (length + 1);  // end of the shares with length + 1 tiles
    return at < end ? at / (length + 1) : num_longer + (at - end) / length;
  }
};

// A unit and its range of tiles on the line.
struct SplitUnit {
  int start = 0;
  int length = 0;
  int num_tiles = 0;

  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int end() const { return start + length; }

  // Number of the unit's non-empty tiles before tile `at` of the line.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int tiles_before(int at) const {
    if (at >= end()) return num_tiles;
    return at > start + kUnitCost ? at - start - kUnitCost : 0;
  }

  // The first and the last share with non-empty tiles of this unit. All shares between them have
  // some, too.
  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int first_share(const SplitShares& shares) const {
    return shares.share_of(shares.whole ? start : start + kUnitCost);
  }

  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int last_share(const SplitShares& shares) const {
    return shares.share_of(end() - 1);
  }
};

// Number of kv heads that share a line: the largest divisor of num_kv_heads that leaves at most one
// of 32 blocks without work.
[[nodiscard]] constexpr int heads_on_a_line(int num_kv_heads, int num_blocks) {
  for (int heads = num_kv_heads; heads > 1; --heads) {
    if (num_kv_heads % heads == 0 && num_blocks % heads * 32 <= num_blocks && heads <= num_blocks) {
      return heads;
    }
  }
  return 1;
}

// Index of the partial result that a share stores for a unit that extends over several shares. A
// share has at most two: one for a unit that began in an earlier share, one for a unit that
// continues in the next.
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr int split_part(int share, bool begins_here) {
  return 2 * share + (begins_here ? 1 : 0);
}

}  // namespace heddle::ops
