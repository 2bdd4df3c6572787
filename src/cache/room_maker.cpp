// SPDX-License-Identifier: Apache-2.0
#include "cache/room_maker.h"

#include <algorithm>

namespace heddle::cache {
namespace {

// 1 / kIdleShare of the shared memory, or of the snapshot slots, stays idle except for postponed
// evictions, so that evictions can be postponed. In shared memory pages and states are evicted in
// the order of their value, so sometimes pages become free and sometimes states. Idle memory of
// both kinds is reused as it is; without it, memory would return to the system and come back as the
// other kind, which takes longer than writing it.
constexpr int64_t kIdleShare = 32;

// At most 1 / kLeastKept of the slots not used by running requests stay idle.
constexpr int64_t kLeastKept = 8;

}  // namespace

// Bytes that could be taken if everything without a lock were evicted.
int64_t RoomMaker::available_bytes() const {
  const PrefixTreeStats tree = tree_.stats();
  const PoolSizes& sizes = pools_.sizes();
  return sizes.shared_bytes - pools_.bytes_in_use() + tree.evictable_pages * sizes.page_bytes +
         tree.evictable_states * sizes.snapshot_bytes();
}

int64_t RoomMaker::available_pages() const {
  const int64_t ids = pools_.pages().num_free() + tree_.stats().evictable_pages;
  if (!shares_memory()) return ids;
  return std::min(ids, std::max<int64_t>(available_bytes(), 0) / pools_.sizes().page_bytes);
}

int64_t RoomMaker::available_states() const {
  const int64_t evictable =
      pools_.sizes().has_own_snapshot_slots() ? 0 : tree_.stats().evictable_states;
  const int64_t ids = pools_.states().num_free() + evictable;
  if (!shares_memory()) return ids;
  return std::min(ids, std::max<int64_t>(available_bytes(), 0) / pools_.sizes().state_slot_bytes);
}

int64_t RoomMaker::free_snapshots() const {
  const int64_t ids = pools_.snapshots().num_free();
  if (!shares_memory()) return std::max<int64_t>(ids - idle_slots(), 0);
  const int64_t bytes = std::max<int64_t>(bytes_to_fill() - pools_.bytes_in_use(), 0);
  return std::min(ids, bytes / pools_.sizes().snapshot_bytes());
}

int64_t RoomMaker::max_snapshots() const {
  const int64_t ids = pools_.snapshots().num_slots();
  if (!shares_memory()) return ids;
  return std::min(ids, pools_.sizes().shared_bytes / pools_.sizes().snapshot_bytes());
}

// Bytes that may be in use while no evictions are postponed.
int64_t RoomMaker::bytes_to_fill() const {
  const int64_t bytes = pools_.sizes().shared_bytes;
  return bytes - bytes / kIdleShare;
}

int64_t RoomMaker::idle_slots() const {
  const int64_t slots = pools_.snapshots().num_slots();
  const int64_t left = slots - pools_.snapshots().ids().count(Owner::kRequest);
  return std::min(slots / kIdleShare, left / kLeastKept);
}

// Slots that the demand takes from the pool that the tree's states are in.
int64_t RoomMaker::tree_slots(const PoolDemand& demand) const {
  return demand.snapshots + (pools_.sizes().has_own_snapshot_slots() ? 0 : demand.states);
}

bool RoomMaker::has_room(const PoolDemand& demand) const {
  if (available_pages() < demand.pages) return false;
  if (pools_.sizes().has_own_snapshot_slots() && pools_.states().num_free() < demand.states) {
    return false;
  }
  const int64_t evictable = tree_.stats().evictable_states;
  if (pools_.snapshots().num_free() + evictable < tree_slots(demand)) return false;
  return !shares_memory() || pools_.bytes_of(demand) <= available_bytes();
}

template <typename Evict>
auto RoomMaker::timed(const Evict& evict) {
  const double began = clock_ == nullptr ? 0 : clock_->now_seconds();
  const auto result = evict();
  if (clock_ != nullptr) eviction_seconds_ += clock_->now_seconds() - began;
  return result;
}

bool RoomMaker::make_room(const PoolDemand& demand) {
  if (!has_room(demand)) return false;
  const int64_t missing_pages = demand.pages - pools_.pages().num_free();
  if (missing_pages > 0) timed([&] { return tree_.evict_pages(missing_pages); });
  const int64_t missing_slots = tree_slots(demand) - pools_.snapshots().num_free();
  if (missing_slots > 0) timed([&] { return tree_.evict_states(missing_slots); });
  if (shares_memory()) {
    const int64_t wanted = pools_.bytes_in_use() + pools_.bytes_of(demand);
    if (wanted > pools_.sizes().shared_bytes) {
      timed([&] { return tree_.evict_bytes(wanted - bytes_to_fill()); });
    }
  }
  return true;
}

bool RoomMaker::has_idle_snapshot() const {
  if (pools_.snapshots().num_free() == 0) return false;
  return !shares_memory() ||
         pools_.bytes_in_use() + pools_.sizes().snapshot_bytes() <= pools_.sizes().shared_bytes;
}

bool RoomMaker::make_room_for_snapshot(const SnapshotRequest& wanted, uint64_t began) {
  if (free_snapshots() > 0) return true;
  if (wanted.evicts) return make_room({.snapshots = 1});
  if (wanted.spacing == 0) return false;
  const int64_t from = std::max<int64_t>(wanted.tokens - wanted.spacing, 0);
  const auto can_owe = [&] {
    return tree_.can_evict_for_middle(from, wanted.tokens, began, std::ssize(owed_middles_));
  };
  if (!owed_middles_.empty() && !can_owe()) evict_owed();
  if (has_idle_snapshot()) {
    if (!can_owe()) return false;
    owed_middles_.push_back({.from = from, .to = wanted.tokens, .began = began});
    return true;
  }
  evict_owed();
  if (free_snapshots() > 0) return true;
  return timed([&] { return tree_.evict_state_for_middle(from, wanted.tokens, began); }) &&
         free_snapshots() > 0;
}

void RoomMaker::evict_owed() {
  const auto missing = [&] {
    return shares_memory() ? pools_.bytes_in_use() - bytes_to_fill()
                           : idle_slots() - pools_.snapshots().num_free();
  };
  const PrefixTreeStats tree = tree_.stats();
  const bool can_evict = tree.evictable_states > 0 || (shares_memory() && tree.evictable_pages > 0);
  if (missing() <= 0 || !can_evict) return owed_middles_.clear();
  timed([&] {
    for (const OwedMiddle& owed : owed_middles_) {
      if (missing() > 0) (void)tree_.evict_state_for_middle(owed.from, owed.to, owed.began);
    }
    owed_middles_.clear();
    if (missing() <= 0) return int64_t{0};
    return shares_memory() ? tree_.evict_bytes(missing()) : tree_.evict_states(missing());
  });
}

}  // namespace heddle::cache
