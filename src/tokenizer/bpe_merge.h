// SPDX-License-Identifier: Apache-2.0
// The merging at the heart of BPE: while some adjacent pair of symbols has a merge, apply the one
// of lowest rank, the leftmost first among equals. Sennrich, Haddow and Birch, "Neural Machine
// Translation of Rare Words with Subword Units", arXiv:1508.07909.
//
// Short words scan for the best pair; long ones keep a heap over a linked list, so that n symbols
// cost O(n log n) whatever they are (a run of one letter, too).
//
// Threading: MergeTable is built by one thread, then immutable; a MergeScratch belongs to one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "tokenizer/cancellation.h"

namespace heddle::tokenizer {

struct Merge {
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  uint32_t rank = kNone;
  TokenId merged = -1;

  [[nodiscard]] bool exists() const { return rank != kNone; }
};

// One line of a merges list.
struct MergeRule {
  TokenId left = -1;
  TokenId right = -1;
  Merge merge;
};

// (left, right) -> (rank, merged id). Open addressing at a load below 3/5; 16 bytes a slot.
class MergeTable {
 public:
  MergeTable() = default;

  // If several rules have the same pair, the last one counts.
  explicit MergeTable(std::span<const MergeRule> rules);

  [[nodiscard]] Merge find(TokenId left, TokenId right) const;

 private:
  [[nodiscard]] size_t home_of(TokenId left, TokenId right) const;
  void insert(const MergeRule& rule);

  std::vector<MergeRule> slots_;  // empty where left < 0
};

// Buffers that keep their memory between calls.
struct MergeScratch {
  std::vector<TokenId> symbols;  // in: the initial symbols; out: the merged ones
  std::vector<Merge> pair;       // for each symbol, its merge with the right neighbour
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
  std::vector<uint64_t> heap;  // rank << 32 | position, smallest first
};

// Merges `scratch.symbols` in place. At most 2^32 - 2 symbols. False when `poll` ended it: the
// symbols are of no use then.
[[nodiscard]] bool merge_symbols(const MergeTable& table, MergeScratch& scratch,
                                 CancellationPoll& poll);

}  // namespace heddle::tokenizer
