// SPDX-License-Identifier: Apache-2.0
// What is where, counted and proven.
#include <algorithm>
#include <set>
#include <vector>

#include "cache/prefix_cache.h"
#include "core/check.h"

namespace heddle::cache {

using request::Sequence;

PrefixCacheStats PrefixCache::stats() const {
  const PrefixTreeStats tree = tree_.stats();
  return {.pages_used = pages_.num_used(),
          .pages_cached = tree.evictable_pages,
          .pages_locked = tree.pages - tree.evictable_pages,
          .state_slots_used = states_.num_used() + own_snapshot_slots_.num_used(),
          .state_slots_cached = tree.evictable_states,
          .state_slots_locked = tree.states - tree.evictable_states,
          .evicted_tokens = tree.evicted_tokens,
          .evicted_states = tree.evicted_states,
          .published_states = published_states_,
          .skipped_snapshots = skipped_snapshots_};
}

CacheLoss PrefixCache::loss(const Sequence& sequence, const PrefixMatch& match) const {
  if (!options_.enabled || repeats(sequence, match)) return {};
  const int64_t most = sequence.num_tokens() - 1;
  const int64_t reused = match.usable_tokens;
  const int64_t once =
      tree_.usable_without_eviction(sequence.tokens, sequence.prefix_hashes, match, most);
  const int64_t grid = !options_.pools.has_states()      ? options_.pools.page_size
                       : chunks_on_grid(options_.policy) ? options_.grid
                                                         : 1;
  const int64_t known = std::min(match.kv_tokens, most);
  const int64_t on_grid = known - known % grid;
  return {.eviction = once - reused,
          .missing_state = std::max<int64_t>(on_grid - once, 0),
          .grid = std::max<int64_t>(known - std::max(once, on_grid), 0),
          .last_token = match.kv_tokens > most ? 1 : 0};
}

void PrefixCache::check_invariants(std::span<const Running> running) const {
  pages_.check_invariants();
  states_.check_invariants();
  own_snapshot_slots_.check_invariants();
  budget_.check_invariants();
  HEDDLE_CHECK_EQ(budget_.bytes_in_use(), bytes_of({.pages = pages_.num_used(),
                                                    .states = states_.num_used(),
                                                    .snapshots = own_snapshot_slots_.num_used()}));
  tree_.check_invariants(running.empty());
  std::vector<bool> page_seen(static_cast<size_t>(options_.pools.num_pages) + 1, false);
  std::set<std::pair<const StateAllocator*, int32_t>> own_slots;
  int64_t own_pages = 0;
  const auto own_slot = [&](const StateAllocator& allocator, int32_t slot) {
    HEDDLE_CHECK(allocator.ids().owner(slot) == Owner::kRequest);
    HEDDLE_CHECK(own_slots.emplace(&allocator, slot).second);
  };
  for (const auto& [sequence, cached] : running) {
    HEDDLE_CHECK_GE(static_cast<int64_t>(sequence->pages.size()),
                    pages_.pages_for(sequence->num_computed));
    for (size_t i = static_cast<size_t>(cached->dead_pages); i < sequence->pages.size(); ++i) {
      const int32_t page = sequence->pages[i];
      const Owner owner = pages_.ids().owner(page);
      if (owner == Owner::kTree) continue;
      HEDDLE_CHECK(owner == Owner::kRequest);
      HEDDLE_CHECK_GE(static_cast<int64_t>(i) * options_.pools.page_size + options_.pools.page_size,
                      cached->shared_tokens + 1);
      HEDDLE_CHECK(!page_seen[static_cast<size_t>(page)]);
      page_seen[static_cast<size_t>(page)] = true;
      ++own_pages;
    }
    HEDDLE_CHECK_EQ(sequence->state_slot != 0, options_.pools.has_states());
    if (sequence->state_slot != 0) {
      own_slot(states_, sequence->state_slot);
      HEDDLE_CHECK_EQ(states_.label(sequence->state_slot), sequence->num_computed);
    }
    for (const CachedSequence::Pending& pending : cached->pending) {
      own_slot(snapshots_, pending.slot);
      HEDDLE_CHECK_LT(sequence->num_computed, pending.tokens);
    }
  }
  HEDDLE_CHECK_EQ(own_pages, pages_.ids().count(Owner::kRequest));
  HEDDLE_CHECK_EQ(std::ssize(own_slots), states_.ids().count(Owner::kRequest) +
                                             own_snapshot_slots_.ids().count(Owner::kRequest));
  std::set<int32_t> snapshots;
  for (const request::IdCopy& save : saves_) {
    HEDDLE_CHECK(states_.ids().owner(save.from) == Owner::kFree);
    HEDDLE_CHECK(own_snapshot_slots_.ids().owner(save.to) == Owner::kTree);
    HEDDLE_CHECK(snapshots.insert(save.to).second);
  }
}

}  // namespace heddle::cache
