// SPDX-License-Identifier: Apache-2.0
// The merging step of BPE: as long as some pair of adjacent symbols has a merge, applies the one
// with the lowest rank, the leftmost first among equals. Sennrich, Haddow and Birch, "Neural
// Machine Translation of Rare Words with Subword Units", arXiv:1508.07909.
//
// Short words are scanned for the best pair. Long ones use a heap over a linked list, so that n
// symbols cost O(n log n) whatever they are (also for a run of one letter).
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

// A merge: one line of a merges list.
struct MergeRule {
  TokenId left = -1;
  TokenId right = -1;
  Merge merge;
};

// Maps (left, right) to (rank, merged id). Open addressing with a load below 3/5; 16 bytes a slot.
class MergeTable {
 public:
  MergeTable() = default;

  // If several rules have the same pair, the last one is used.
  explicit MergeTable(std::span<const MergeRule> rules);

  [[nodiscard]] Merge find(TokenId left, TokenId right) const;

 private:
  [[nodiscard]] size_t home_of(TokenId left, TokenId right) const;
  void insert(const MergeRule& rule);

  std::vector<MergeRule> slots_;  // slots with left < 0 are empty
};

// Buffers that keep their allocation between calls.
struct MergeScratch {
  std::vector<TokenId> symbols;  // in: the initial symbols; out: the merged ones
  std::vector<Merge> pair;       // for each symbol, its merge with the right neighbour
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
  std::vector<uint64_t> heap;  // rank << 32 | position, smallest first
};

// Merges `scratch.symbols` in place, at most 2^32 - 2 symbols. Returns false if `poll` ended the
// call: the symbols are then unusable.
[[nodiscard]] bool merge_symbols(const MergeTable& table, MergeScratch& scratch,
                                 CancellationPoll& poll);

}  // namespace heddle::tokenizer
