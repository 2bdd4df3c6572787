// SPDX-License-Identifier: Apache-2.0
// Where pages and slots come from: free ids, memory that is left, and what can be evicted.
#include <algorithm>
#include <vector>

#include "cache/prefix_cache.h"
#include "core/check.h"

namespace heddle::cache {
namespace {

// One part in so many of the shared memory that eviction leaves idle. Pages and states are evicted
// in the order of their worth, so what becomes free is now the one and now the other: with idle
// memory of both kinds it is used again as it is, without it it goes back to the system and comes
// again as the other kind, which takes longer than writing it.
constexpr int64_t kIdleShare = 32;

}  // namespace

// What could be in use in addition, once everything nobody holds is given up.
int64_t PrefixCache::available_bytes() const {
  const PrefixTreeStats tree = tree_.stats();
  return options_.pools.shared_bytes - budget_.bytes_in_use() +
         tree.evictable_pages * options_.pools.page_bytes +
         tree.evictable_states * options_.pools.snapshot_bytes();
}

int64_t PrefixCache::available_pages() const {
  const int64_t ids = pages_.num_free() + tree_.stats().evictable_pages;
  if (options_.pools.shared_bytes == 0) return ids;
  return std::min(ids, std::max<int64_t>(available_bytes(), 0) / options_.pools.page_bytes);
}

int64_t PrefixCache::available_states() const {
  const int64_t ids =
      states_.num_free() + (has_own_snapshot_slots() ? 0 : tree_.stats().evictable_states);
  if (options_.pools.shared_bytes == 0) return ids;
  return std::min(ids, std::max<int64_t>(available_bytes(), 0) / options_.pools.state_slot_bytes);
}

int64_t PrefixCache::free_snapshot_slots() const {
  if (options_.pools.shared_bytes == 0) return snapshots_.num_free();
  const int64_t bytes = std::max<int64_t>(bytes_to_fill() - budget_.bytes_in_use(), 0);
  return std::min(snapshots_.num_free(), bytes / options_.pools.snapshot_bytes());
}

int64_t PrefixCache::bytes_to_fill() const {
  return options_.pools.shared_bytes - options_.pools.shared_bytes / kIdleShare;
}

int64_t PrefixCache::max_snapshot_slots() const {
  if (options_.pools.shared_bytes == 0) return snapshots_.num_slots();
  return std::min(snapshots_.num_slots(),
                  options_.pools.shared_bytes / options_.pools.snapshot_bytes());
}

int64_t PrefixCache::bytes_of(const Need& need) const {
  return need.pages * options_.pools.page_bytes + need.states * options_.pools.state_slot_bytes +
         need.snapshots * options_.pools.snapshot_bytes();
}

bool PrefixCache::has_room(const Need& need) const {
  const int64_t evictable = tree_.stats().evictable_states;
  if (available_pages() < need.pages) return false;
  if (has_own_snapshot_slots() && states_.num_free() < need.states) return false;
  const int64_t tree_slots = need.snapshots + (has_own_snapshot_slots() ? 0 : need.states);
  if (snapshots_.num_free() + evictable < tree_slots) return false;
  return options_.pools.shared_bytes == 0 || bytes_of(need) <= available_bytes();
}

// Evicts until all of it can be taken, and as far as possible beside idle memory; nothing, and
// false, if that cannot be.
bool PrefixCache::make_room(const Need& need) {
  if (!has_room(need)) return false;
  if (pages_.num_free() < need.pages) tree_.evict_pages(need.pages - pages_.num_free());
  const int64_t tree_slots = need.snapshots + (has_own_snapshot_slots() ? 0 : need.states);
  if (snapshots_.num_free() < tree_slots) tree_.evict_states(tree_slots - snapshots_.num_free());
  if (options_.pools.shared_bytes > 0) {
    const int64_t missing = budget_.bytes_in_use() + bytes_of(need) - bytes_to_fill();
    if (missing > 0) tree_.evict_bytes(missing);
  }
  return true;
}

void PrefixCache::take_pages(int64_t count, std::vector<int32_t>& pages) {
  const size_t before = pages.size();
  HEDDLE_CHECK(pages_.allocate(count, pages));
  HEDDLE_CHECK(
      budget_.commit(MemoryKind::kPages, std::span<const int32_t>(pages).subspan(before), unused_));
}

int32_t PrefixCache::take_state() {
  const int32_t slot = states_.allocate();
  HEDDLE_CHECK_NE(slot, 0);
  HEDDLE_CHECK(budget_.commit(MemoryKind::kStates, {&slot, 1}, unused_));
  return slot;
}

int32_t PrefixCache::take_snapshot_slot() {
  if (!has_own_snapshot_slots()) return take_state();
  const int32_t slot = snapshots_.allocate();
  HEDDLE_CHECK_NE(slot, 0);
  HEDDLE_CHECK(budget_.commit(MemoryKind::kSnapshots, {&slot, 1}, unused_));
  return slot;
}

void PrefixCache::plan_head(request::BatchPlan& plan) {
  std::vector<int32_t>& unused_pages = unused_[MemoryKind::kPages];
  std::sort(unused_pages.begin(), unused_pages.end());  // runs go back in one call
  std::swap(plan.unused_pages, unused_pages);
  std::swap(plan.unused_state_slots, unused_[MemoryKind::kStates]);
  std::swap(plan.unused_snapshot_slots, unused_[MemoryKind::kSnapshots]);
  for (std::vector<int32_t>& ids : unused_.values) ids.clear();
  std::swap(plan.save_snapshots, saves_);
  saves_.clear();
}

}  // namespace heddle::cache
