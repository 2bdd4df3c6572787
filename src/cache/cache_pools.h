// SPDX-License-Identifier: Apache-2.0
// CachePools: the ids of pages of each page table, of state slots and of snapshot slots, and a
// budget for their memory. It hands out ids and plans two kinds of moves for the head of the next
// step: returning unused memory to the system, and saving the last states of sequences into
// snapshot slots.
//
// Snapshots either use state slots, or have a format and slots of their own (PoolSizes).
//
// Threading:  confined to the engine thread.
// Invariants: the bytes in use are those of the ids that are not free; a save reads a state slot
//             that is already free and writes a snapshot slot of the tree, each at most once.
// Cost:       O(1) per id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/memory_budget.h"
#include "cache/page_allocator.h"
#include "cache/pool_sizes.h"
#include "cache/state_allocator.h"
#include "cache/window_pages.h"
#include "request/batch_plan.h"

namespace heddle::cache {

// The number of ids of each kind that a caller is about to take.
struct PoolDemand {
  int64_t pages = 0;
  int64_t states = 0;
  int64_t snapshots = 0;
};

class CachePools {
 public:
  explicit CachePools(const PoolSizes& sizes);
  CachePools(const CachePools&) = delete;
  CachePools& operator=(const CachePools&) = delete;

  // The sizes of an id are at least one byte here, so that they can be divisors.
  [[nodiscard]] const PoolSizes& sizes() const { return sizes_; }

  // The pages of page table 0.
  [[nodiscard]] PageAllocator& pages() { return pages_; }

  [[nodiscard]] const PageAllocator& pages() const { return pages_; }

  [[nodiscard]] StateAllocator& states() { return states_; }

  [[nodiscard]] const StateAllocator& states() const { return states_; }

  // The slots for snapshots: separate ones, or states().
  [[nodiscard]] StateAllocator& snapshots() {
    return sizes_.has_own_snapshot_slots() ? own_snapshots_ : states_;
  }

  [[nodiscard]] const StateAllocator& snapshots() const {
    return sizes_.has_own_snapshot_slots() ? own_snapshots_ : states_;
  }

  // The pages of tables 1 and up, which have windows. Sequences pin these pages themselves.
  [[nodiscard]] std::span<WindowPages> windows() { return windows_; }

  [[nodiscard]] std::span<const WindowPages> windows() const { return windows_; }

  // Number of state slots and snapshot slots in use, each counted once.
  [[nodiscard]] int64_t num_slots_used() const {
    return states_.num_used() + own_snapshots_.num_used();
  }

  // The take functions allocate free ids. There must be enough ids and memory (both checked);
  // RoomMaker sees to that.
  void take_pages(int64_t count, std::vector<int32_t>& pages);
  [[nodiscard]] int32_t take_state();
  [[nodiscard]] int32_t take_snapshot();

  // Plans a copy of the working state in slot `from` to snapshot slot `to` at the head of the next
  // step. The copy is cancelled if `to` is freed before.
  void save_at_next_step(int32_t from, int32_t to) { saves_.push_back({.from = from, .to = to}); }

  // Adds the moves that are due to `plan`, for the head of its step.
  void plan_head(request::BatchPlan& plan);

  [[nodiscard]] int64_t bytes_of(const PoolDemand& demand) const;

  [[nodiscard]] int64_t bytes_in_use() const { return budget_.bytes_in_use(); }

  // Checks the invariants and aborts if one is broken. Cost: O(ids).
  void check_invariants() const;

 private:
  // Passes the freed ids of a pool on to the budget.
  struct FreedIds : IdPool::FreeObserver {
    FreedIds(MemoryBudget& shared, MemoryKind memory) : budget(shared), kind(memory) {}

    void freed(std::span<const int32_t> ids) override { budget.free(kind, ids); }

    MemoryBudget& budget;
    MemoryKind kind;
  };

  // Reports freed snapshot slots to the budget and cancels saves into them.
  struct FreedSnapshots final : FreedIds {
    FreedSnapshots(MemoryBudget& shared, std::vector<ops::IdCopy>& planned)
        : FreedIds(shared, MemoryKind::kSnapshots), saves(planned) {}

    void freed(std::span<const int32_t> ids) override;

    std::vector<ops::IdCopy>& saves;
  };

  PoolSizes sizes_;
  MemoryBudget budget_;
  ReleasedIds unused_;              // ids whose memory the next step returns to the system
  std::vector<ops::IdCopy> saves_;  // copies planned from working slots to snapshot slots of the
                                    // tree
  FreedIds freed_pages_{budget_, MemoryKind::kPages};
  FreedIds freed_states_{budget_, MemoryKind::kStates};
  FreedSnapshots freed_snapshots_{budget_, saves_};
  PageAllocator pages_;
  std::vector<WindowPages> windows_;
  StateAllocator states_;
  StateAllocator own_snapshots_;  // empty if snapshots use states_
};

}  // namespace heddle::cache
