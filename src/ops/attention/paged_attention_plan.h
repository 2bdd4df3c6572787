// SPDX-License-Identifier: Apache-2.0
// Where attention in splits cuts the tokens of a step (paged_attention_split.h): how many of them
// one block takes at a time. An item is the tokens of one split, for one kv head and eight rows.
//
// Threading: pure functions, the same on the host and on the device.
#pragma once

#include <cstdint>

#include "core/compiler.h"

namespace heddle::ops {

inline constexpr int kLeastSplit = 64;
inline constexpr int kFewItems = 256;  // so many splits of up to kLongSplit before they are longer
inline constexpr int kLongSplit = 256;
inline constexpr int kMostSplits = 1024;  // about so many items; twice as many with ragged ends

// The tokens that any new row of a sequence sees; splits are counted from the first.
struct SplitExtent {
  int num_tokens = 0;  // new ones; 0: the sequence is not computed here
  int begin = 0;
  int end = 0;

  [[nodiscard]] HEDDLE_HOST_DEVICE constexpr int num_splits(int split) const {
    return (end - begin + split - 1) / split;
  }
};

// The work of a step whose sequences are not split.
struct SplitLoad {
  long long tokens = 0;  // of all items
  int units = 0;         // items
  int longest = 0;       // tokens of the largest

  // A sequence with so many items.
  HEDDLE_HOST_DEVICE constexpr void add(const SplitExtent& extent, int num_items) {
    const int length = extent.end - extent.begin;
    add({.tokens = static_cast<long long>(length) * num_items,
         .units = num_items,
         .longest = length});
  }

  HEDDLE_HOST_DEVICE constexpr void add(const SplitLoad& other) {
    tokens += other.tokens;
    units += other.units;
    if (longest < other.longest) longest = other.longest;
  }
};

// Tokens of a split. Whole sequences, which need no joining, where they keep the blocks busy to
// eight ninths.
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr int split_length(const SplitLoad& load, int num_blocks) {
  int split = kLeastSplit;
  while (split < kLongSplit && static_cast<long long>(split) * kFewItems < load.tokens) split *= 2;
  while (static_cast<long long>(split) * kMostSplits < load.tokens) split *= 2;
  const long long turns = (load.units + num_blocks - 1) / num_blocks;
  if (turns * num_blocks * load.longest * 8 <= load.tokens * 9 && split < load.longest) {
    split = load.longest;
  }
  return split;
}

}  // namespace heddle::ops
