// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_merge.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/check.h"
#include "tokenizer/hash.h"

namespace heddle::tokenizer {
namespace {

// Words up to this length are scanned: the n^2 comparisons of neighbouring integers then cost less
// than the heap's n log n scattered ones (measured between 100 and 200).
constexpr size_t kScanLimit = 128;
constexpr size_t kMinRuleSlots = 16;

// Number of look-ups by which entries are prefetched: building the table is dominated by cache
// misses.
constexpr size_t kPrefetchDistance = 16;

void merge_by_scanning(const MergeTable& table, MergeScratch& scratch) {
  std::vector<TokenId>& symbols = scratch.symbols;
  std::vector<Merge>& pair = scratch.pair;
  const auto pair_at = [&](size_t i) { return table.find(symbols[i], symbols[i + 1]); };
  pair.resize(symbols.size() - 1);
  for (size_t i = 0; i < pair.size(); ++i) pair[i] = pair_at(i);
  while (!pair.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < pair.size(); ++i) {
      if (pair[i].rank < pair[best].rank) best = i;
    }
    if (!pair[best].exists()) return;
    symbols[best] = pair[best].merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    pair.erase(pair.begin() + static_cast<std::ptrdiff_t>(best));
    if (best < pair.size()) pair[best] = pair_at(best);
    if (best > 0) pair[best - 1] = pair_at(best - 1);
  }
}

// Symbols stay at their first position; `next` and `previous` skip those that were merged into
// another. A heap entry is stale if the pair at its position now has another rank.
class HeapMerger {
 public:
  HeapMerger(const MergeTable& table, MergeScratch& scratch, CancellationPoll& poll)
      : table_(table), scratch_(scratch), poll_(poll) {}

  // Returns false if the call is cancelled.
  bool run() {
    const size_t n = scratch_.symbols.size();
    HEDDLE_CHECK_LT(n, static_cast<size_t>(kEnd));
    scratch_.pair.assign(n, Merge{});
    scratch_.previous.resize(n);
    scratch_.next.resize(n);
    scratch_.heap.clear();
    for (uint32_t i = 0; i < n; ++i) {
      scratch_.previous[i] = i == 0 ? kEnd : i - 1;
      scratch_.next[i] = i + 1 == n ? kEnd : i + 1;
    }
    for (uint32_t i = 0; i + 1 < n; ++i) {
      if (poll_.cancelled_after(1)) return false;
      scratch_.pair[i] = find_pair(i);
      if (scratch_.pair[i].exists()) scratch_.heap.push_back(heap_entry(i));
    }
    std::make_heap(scratch_.heap.begin(), scratch_.heap.end(), std::greater<>());
    while (!scratch_.heap.empty()) {
      if (poll_.cancelled_after(1)) return false;
      std::pop_heap(scratch_.heap.begin(), scratch_.heap.end(), std::greater<>());
      const uint64_t entry = scratch_.heap.back();
      scratch_.heap.pop_back();
      const auto position = static_cast<uint32_t>(entry);
      if (scratch_.pair[position].rank == static_cast<uint32_t>(entry >> 32)) merge_at(position);
    }
    compact();
    return true;
  }

 private:
  static constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();

  [[nodiscard]] Merge find_pair(uint32_t i) const {
    return table_.find(scratch_.symbols[i], scratch_.symbols[scratch_.next[i]]);
  }

  [[nodiscard]] uint64_t heap_entry(uint32_t i) const {
    return static_cast<uint64_t>(scratch_.pair[i].rank) << 32 | i;
  }

  void renew_pair(uint32_t i) {
    scratch_.pair[i] = scratch_.next[i] == kEnd ? Merge{} : find_pair(i);
    if (!scratch_.pair[i].exists()) return;
    scratch_.heap.push_back(heap_entry(i));
    std::push_heap(scratch_.heap.begin(), scratch_.heap.end(), std::greater<>());
  }

  void merge_at(uint32_t i) {
    const uint32_t gone = scratch_.next[i];
    scratch_.symbols[i] = scratch_.pair[i].merged;
    scratch_.pair[gone] = Merge{};
    scratch_.next[i] = scratch_.next[gone];
    if (scratch_.next[i] != kEnd) scratch_.previous[scratch_.next[i]] = i;
    renew_pair(i);
    if (scratch_.previous[i] != kEnd) renew_pair(scratch_.previous[i]);
  }

  void compact() {
    size_t count = 0;
    for (uint32_t i = 0; i != kEnd; i = scratch_.next[i]) {
      scratch_.symbols[count++] = scratch_.symbols[i];
    }
    scratch_.symbols.resize(count);
  }

  const MergeTable& table_;
  MergeScratch& scratch_;
  CancellationPoll& poll_;
};

}  // namespace

MergeTable::MergeTable(std::span<const MergeRule> rules) {
  if (rules.empty()) return;
  size_t num_slots = std::bit_ceil(std::max(rules.size(), kMinRuleSlots));
  if (rules.size() * 5 > num_slots * 3) num_slots *= 2;
  slots_.resize(num_slots);
  for (size_t i = 0; i < rules.size(); ++i) {
    if (i + kPrefetchDistance < rules.size()) {
      const MergeRule& later = rules[i + kPrefetchDistance];
      __builtin_prefetch(&slots_[home_of(later.left, later.right)], /*write=*/1);
    }
    insert(rules[i]);
  }
}

size_t MergeTable::home_of(TokenId left, TokenId right) const {
  return hash_pair(static_cast<uint32_t>(left), static_cast<uint32_t>(right)) & (slots_.size() - 1);
}

void MergeTable::insert(const MergeRule& rule) {
  const size_t mask = slots_.size() - 1;
  size_t index = home_of(rule.left, rule.right);
  while (slots_[index].left >= 0 &&
         (slots_[index].left != rule.left || slots_[index].right != rule.right)) {
    index = (index + 1) & mask;
  }
  slots_[index] = rule;
}

Merge MergeTable::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return {};
  const size_t mask = slots_.size() - 1;
  for (size_t index = home_of(left, right); slots_[index].left >= 0; index = (index + 1) & mask) {
    const MergeRule& slot = slots_[index];
    if (slot.left == left && slot.right == right) return slot.merge;
  }
  return {};
}

bool merge_symbols(const MergeTable& table, MergeScratch& scratch, CancellationPoll& poll) {
  if (scratch.symbols.size() < 2) return true;
  if (scratch.symbols.size() > kScanLimit) return HeapMerger(table, scratch, poll).run();
  merge_by_scanning(table, scratch);
  return true;
}

}  // namespace heddle::tokenizer
