// SPDX-License-Identifier: Apache-2.0
// RoomMaker: decides whether there is room in the pools, and evicts from the tree until there is.
//
// Room is two things: free ids, and where the pools share memory, bytes. Both count what can be
// evicted. Nothing is evicted for a demand that cannot be met as a whole.
//
// Shared memory is filled up to a part that stays idle, as are slots for snapshots where no memory
// is shared. A plan may use of that: what it would have evicted is owed until its step computes, so
// that no step waits for these evictions.
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
  // All outlive this. Without a clock evictions take no time.
  RoomMaker(const CachePools& pools, PrefixTree& tree, const Clock* clock = nullptr)
      : pools_(pools), tree_(tree), clock_(clock) {}

  // Pages and state slots that are free or can be evicted.
  [[nodiscard]] int64_t available_pages() const;
  [[nodiscard]] int64_t available_states() const;  // for working states

  // Slots that a snapshot can have without an eviction.
  [[nodiscard]] int64_t free_snapshots() const;

  // How many snapshots there can be.
  [[nodiscard]] int64_t max_snapshots() const;

  [[nodiscard]] bool has_room(const PoolDemand& demand) const;

  // Evicts until all of the demand can be taken; false, and nothing changes, if it cannot be met.
  [[nodiscard]] bool make_room(const PoolDemand& demand);

  // A slot for one snapshot, at the cost that the request allows, of a sequence that began at tick
  // `began` of the tree's clock.
  [[nodiscard]] bool make_room_for_snapshot(const SnapshotRequest& wanted, uint64_t began);

  // Runs deferred evictions: call it when there is time.
  void evict_owed();

  // How long evictions have taken since the start.
  [[nodiscard]] double eviction_seconds() const { return eviction_seconds_; }

 private:
  [[nodiscard]] bool shares_memory() const { return pools_.sizes().shared_bytes > 0; }

  // An eviction for a middle snapshot that got idle memory.
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

  // Calls evict() and counts its time.
  template <typename Evict>
  auto timed(const Evict& evict);

  const CachePools& pools_;
  PrefixTree& tree_;
  const Clock* clock_;
  std::vector<OwedMiddle> owed_middles_;
  double eviction_seconds_ = 0;
};

}  // namespace heddle::cache
