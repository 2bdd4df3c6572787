// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_pools.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/check.h"

namespace heddle::cache {

using request::MoveKind;

namespace {

PoolSizes at_least_one_byte(PoolSizes sizes) {
  for (int64_t* bytes : {&sizes.page_bytes, &sizes.state_slot_bytes, &sizes.snapshot_slot_bytes}) {
    *bytes = std::max<int64_t>(*bytes, 1);
  }
  return sizes;
}

MemoryBudget::Options budget_options(const PoolSizes& sizes) {
  MemoryBudget::Options budget{.shared_bytes = sizes.shared_bytes};
  budget.pools[MemoryKind::kPages] = {sizes.num_pages, sizes.page_bytes};
  budget.pools[MemoryKind::kStates] = {sizes.num_state_slots, sizes.state_slot_bytes};
  budget.pools[MemoryKind::kSnapshots] = {sizes.num_snapshot_slots, sizes.snapshot_slot_bytes};
  return budget;
}

}  // namespace

CachePools::CachePools(const PoolSizes& sizes)
    : sizes_(at_least_one_byte(sizes)),
      budget_(budget_options(sizes_)),
      pages_(sizes.num_pages, sizes.page_size),
      windows_(WindowPages::of(sizes)),
      states_(sizes.num_state_slots),
      own_snapshots_(sizes.num_snapshot_slots, "snapshot slot") {
  HEDDLE_CHECK(sizes.has_states() || !sizes.has_own_snapshot_slots());
  pages_.ids().set_free_observer(&freed_pages_);
  states_.ids().set_free_observer(&freed_states_);
  own_snapshots_.ids().set_free_observer(&freed_snapshots_);
}

void CachePools::FreedSnapshots::freed(std::span<const int32_t> ids) {
  FreedIds::freed(ids);
  std::erase_if(saves, [&](const ops::IdCopy& save) {
    return std::find(ids.begin(), ids.end(), save.to) != ids.end();
  });
}

void CachePools::take_pages(int64_t count, std::vector<int32_t>& pages) {
  const size_t before = pages.size();
  HEDDLE_CHECK(pages_.allocate(count, pages));
  HEDDLE_CHECK(
      budget_.commit(MemoryKind::kPages, std::span<const int32_t>(pages).subspan(before), unused_));
}

int32_t CachePools::take_state() {
  const int32_t slot = states_.allocate();
  HEDDLE_CHECK_NE(slot, 0);
  HEDDLE_CHECK(budget_.commit(MemoryKind::kStates, {&slot, 1}, unused_));
  return slot;
}

int32_t CachePools::take_snapshot() {
  if (!sizes_.has_own_snapshot_slots()) return take_state();
  const int32_t slot = own_snapshots_.allocate();
  HEDDLE_CHECK_NE(slot, 0);
  HEDDLE_CHECK(budget_.commit(MemoryKind::kSnapshots, {&slot, 1}, unused_));
  return slot;
}

void CachePools::plan_head(request::BatchPlan& plan) {
  std::ranges::sort(unused_[MemoryKind::kPages]);  // consecutive ids are returned in one call
  for (const auto& [kind, release] :
       {std::pair(MemoryKind::kPages, MoveKind::kReleasePage),
        std::pair(MemoryKind::kStates, MoveKind::kReleaseState),
        std::pair(MemoryKind::kSnapshots, MoveKind::kReleaseSnapshot)}) {
    for (const int32_t id : unused_[kind]) plan.add_move({.kind = release, .from = id});
    unused_[kind].clear();
  }
  for (const ops::IdCopy& save : saves_) {
    plan.add_move({.kind = MoveKind::kSave, .from = save.from, .to = save.to});
  }
  saves_.clear();
}

int64_t CachePools::bytes_of(const PoolDemand& demand) const {
  return demand.pages * sizes_.page_bytes + demand.states * sizes_.state_slot_bytes +
         demand.snapshots * sizes_.snapshot_bytes();
}

void CachePools::check_invariants() const {
  pages_.check_invariants();
  for (const WindowPages& window : windows_) window.check_invariants();
  states_.check_invariants();
  own_snapshots_.check_invariants();
  budget_.check_invariants();
  HEDDLE_CHECK_EQ(budget_.bytes_in_use(), bytes_of({.pages = pages_.num_used(),
                                                    .states = states_.num_used(),
                                                    .snapshots = own_snapshots_.num_used()}));
  std::set<int32_t> targets;
  for (const ops::IdCopy& save : saves_) {
    HEDDLE_CHECK(states_.ids().owner(save.from) == Owner::kFree);
    HEDDLE_CHECK(own_snapshots_.ids().owner(save.to) == Owner::kTree);
    HEDDLE_CHECK(targets.insert(save.to).second);
  }
}

}  // namespace heddle::cache
