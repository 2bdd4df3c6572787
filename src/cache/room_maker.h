// SPDX-License-Identifier: Apache-2.0
// RoomMaker: decides whether the pools have room for a demand, and evicts from the tree until they
// do.
//
// Room means free ids and, if the pools share memory, free bytes. Ids and bytes that can be evicted
// count as free. Nothing is evicted for a demand that cannot be met as a whole.
//
// A part of shared memory stays idle, or of the snapshot slots if memory is not shared. A plan may
// use this part; the evictions it would have needed are postponed until its step computes
// (evict_owed()), so that no step waits for them.
//
// Threading: confined to the engine thread. Cost: O(1) to ask, O(log nodes) per eviction.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/cache_pools.h"
#include "cache/prefix_tree.h"
#include "cache/snapshot_policy.h"
#include "core/clock.h"

namespace heddle::cache {

class RoomMaker {
 public:
  // All arguments outlive the object. Without a clock the time of evictions is not measured.
  RoomMaker(const CachePools& pools, PrefixTree& tree, const Clock* clock = nullptr)
      : pools_(pools), tree_(tree), clock_(clock) {}

  // Number of pages, and of state slots, that are free or can be evicted.
  [[nodiscard]] int64_t available_pages() const;
  [[nodiscard]] int64_t available_states() const;  // state slots for working states

  // Slots that snapshots can get without an eviction.
  [[nodiscard]] int64_t free_snapshots() const;

  // Number of snapshots that fit at most.
  [[nodiscard]] int64_t max_snapshots() const;

  [[nodiscard]] bool has_room(const PoolDemand& demand) const;

  // Evicts until all of the demand can be allocated. Returns false and changes nothing if it cannot
  // be met.
  [[nodiscard]] bool make_room(const PoolDemand& demand);

  // Whether a slot for one snapshot is free or can be freed at the cost that `wanted` allows.
  // `began` is the tick of the tree's clock at which the snapshot's sequence began.
  [[nodiscard]] bool make_room_for_snapshot(const SnapshotRequest& wanted, uint64_t began);

  // Runs the postponed evictions. Called while a step computes.
  void evict_owed();

  // Total duration of evictions since the start.
  [[nodiscard]] double eviction_seconds() const { return eviction_seconds_; }

 private:
  [[nodiscard]] bool shares_memory() const { return pools_.sizes().shared_bytes > 0; }

  // The arguments of a postponed evict_state_for_middle(), whose snapshot used idle memory.
  struct OwedMiddle {
    int64_t from = 0;
    int64_t to = 0;
    uint64_t began = 0;
  };

  [[nodiscard]] int64_t available_bytes() const;
  [[nodiscard]] int64_t bytes_to_fill() const;
  [[nodiscard]] int64_t idle_slots() const;
  [[nodiscard]] int64_t tree_slots(const PoolDemand& demand) const;
  [[nodiscard]] bool has_idle_snapshot() const;

  // Calls evict() and adds its duration to eviction_seconds_.
  template <typename Evict>
  auto timed(const Evict& evict);

  const CachePools& pools_;
  PrefixTree& tree_;
  const Clock* clock_;
  std::vector<OwedMiddle> owed_middles_;
  double eviction_seconds_ = 0;
};

}  // namespace heddle::cache
