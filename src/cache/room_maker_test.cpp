// SPDX-License-Identifier: Apache-2.0
// RoomMaker and the CachePools that it makes room in.
#include "cache/room_maker.h"

#include <numeric>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cache {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

struct Rooms {
  explicit Rooms(const PoolSizes& sizes)
      : pools(sizes),
        tree({.eviction = EvictionPolicy::kLru,
              .page_bytes = pools.sizes().page_bytes,
              .state_bytes = pools.sizes().snapshot_bytes()},
             pools.pages(), pools.windows(), pools.snapshots()),
        room(pools, tree) {}

  // Keeps a sequence of `length` tokens, which begins with `first`, and its state in the tree.
  PrefixNode* keep(int64_t length, TokenId first, bool middle = false) {
    std::vector<TokenId> tokens(static_cast<size_t>(length));
    std::iota(tokens.begin(), tokens.end(), first);
    std::vector<int32_t> pages;
    pools.take_pages(pools.pages().pages_for(length), pages);
    const int32_t slot = pools.take_snapshot();
    pools.snapshots().set_label(slot, length);
    return tree
        .insert({.tokens = tokens,
                 .name_space = "",
                 .hashes = request::PrefixHashes(tokens),
                 .pages = pages,
                 .state_slot = slot,
                 .middle = middle})
        .node;
  }

  CachePools pools;
  PrefixTree tree;
  RoomMaker room;
};

TEST(RoomMaker, EvictsAsMuchAsIsMissing) {
  Rooms rooms({.num_pages = 10, .page_size = 4, .num_state_slots = 3});
  rooms.keep(8, 0);
  rooms.keep(8, 100);
  EXPECT_EQ(rooms.room.available_pages(), 10);
  EXPECT_EQ(rooms.room.available_states(), 3);
  EXPECT_EQ(rooms.room.free_snapshots(), 1);
  ASSERT_TRUE(rooms.room.make_room({.pages = 7, .states = 1}));
  EXPECT_EQ(rooms.tree.stats().num_nodes, 1) << "the older one went";
  EXPECT_EQ(rooms.pools.pages().num_free(), 8);
  EXPECT_EQ(rooms.pools.states().num_free(), 2);
}

TEST(RoomMaker, EvictsNothingForADemandThatCannotBeMet) {
  Rooms rooms({.num_pages = 10, .page_size = 4, .num_state_slots = 3});
  rooms.keep(8, 0);
  PrefixNode* kept = rooms.keep(8, 100);
  PrefixLock lock = rooms.tree.lock(kept, true);
  EXPECT_FALSE(rooms.room.make_room({.pages = 9}));
  EXPECT_FALSE(rooms.room.make_room({.states = 3}));
  EXPECT_FALSE(rooms.room.make_room({.states = 2, .snapshots = 1})) << "they use the same slots";
  EXPECT_EQ(rooms.tree.stats().num_nodes, 2);
  EXPECT_TRUE(rooms.room.make_room({.pages = 8, .states = 2}));
  EXPECT_EQ(rooms.tree.stats().num_nodes, 1);
  rooms.tree.unlock(lock);
}

TEST(RoomMaker, WorkingSlotsAreNotEvictedWhereSnapshotsHaveTheirOwn) {
  Rooms rooms({.num_pages = 10, .page_size = 4, .num_state_slots = 1, .num_snapshot_slots = 2});
  rooms.keep(8, 0);
  rooms.keep(8, 100);
  EXPECT_EQ(rooms.room.available_states(), 1);
  EXPECT_FALSE(rooms.room.has_room({.states = 2}));
  EXPECT_TRUE(rooms.room.has_room({.states = 1, .snapshots = 2}));
  EXPECT_EQ(rooms.room.free_snapshots(), 0);
  EXPECT_TRUE(rooms.room.make_room({.snapshots = 1}));
  EXPECT_EQ(rooms.room.free_snapshots(), 1);
}

TEST(RoomMaker, SharedMemoryLeavesAPartIdle) {
  // 640 bytes: a sequence of two pages and a state takes 220 of them.
  Rooms rooms({.num_pages = 64,
               .page_size = 4,
               .num_state_slots = 6,
               .page_bytes = 10,
               .state_slot_bytes = 200,
               .shared_bytes = 640});
  rooms.keep(8, 0);
  rooms.keep(8, 100);
  EXPECT_EQ(rooms.room.max_snapshots(), 3);
  EXPECT_EQ(rooms.room.free_snapshots(), 0) << "180 of 620 bytes are left";
  EXPECT_EQ(rooms.room.available_pages(), 64);
  EXPECT_EQ(rooms.room.available_states(), 3);
  std::vector<int32_t> pages;
  ASSERT_TRUE(rooms.room.make_room({.pages = 18}));
  rooms.pools.take_pages(18, pages);
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 2) << "620 bytes may be in use";
  ASSERT_TRUE(rooms.room.make_room({.pages = 1}));
  rooms.pools.take_pages(1, pages);
  EXPECT_EQ(rooms.tree.stats().states, 2) << "the part that stays idle may be used";
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 1) << "for a while";
  ASSERT_TRUE(rooms.room.make_room({.pages = 24}));
  EXPECT_EQ(rooms.tree.stats().states, 0) << "there are 640 bytes, not 650";
  EXPECT_FALSE(rooms.room.has_room({.pages = 46}));
}

// 62 sequences of 22 bytes, as many as may be in use, and 44 bytes that stay idle.
struct FullRooms : Rooms {
  FullRooms()
      : Rooms({.num_pages = 200,
               .page_size = 4,
               .num_state_slots = 80,
               .page_bytes = 1,
               .state_slot_bytes = 20,
               .shared_bytes = 1408}) {
    for (int i = 0; i < 62; ++i) keep(8, 100 * i);
  }
};

TEST(RoomMaker, EvictionsForMiddlesAreOwedWhileThereIsIdleMemory) {
  FullRooms rooms;
  ASSERT_EQ(rooms.room.free_snapshots(), 0);
  EXPECT_FALSE(rooms.room.make_room_for_snapshot({.tokens = 64}, 0)) << "only below that";
  const auto take_middle = [&] {
    ASSERT_TRUE(rooms.room.make_room_for_snapshot({.tokens = 64, .spacing = 64}, 0));
    (void)rooms.pools.take_snapshot();
  };
  take_middle();
  take_middle();
  EXPECT_EQ(rooms.tree.stats().states, 62);
  take_middle();
  EXPECT_EQ(rooms.tree.stats().states, 59) << "two were owed, and there was no room for a third";
  take_middle();
  EXPECT_EQ(rooms.tree.stats().states, 59);
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 58);
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 58) << "once";
}

TEST(RoomMaker, SlotsThatShareNoMemoryLeaveAPartIdle) {
  Rooms rooms({.num_pages = 200, .page_size = 4, .num_state_slots = 64});
  for (int i = 0; i < 62; ++i) rooms.keep(8, 100 * i);
  ASSERT_EQ(rooms.room.free_snapshots(), 0) << "one in 32";
  EXPECT_FALSE(rooms.room.make_room_for_snapshot({.tokens = 64}, 0));
  ASSERT_TRUE(rooms.room.make_room_for_snapshot({.tokens = 64, .spacing = 64}, 0));
  (void)rooms.pools.take_snapshot();
  ASSERT_TRUE(rooms.room.make_room_for_snapshot({.tokens = 64, .evicts = true}, 0));
  (void)rooms.pools.take_snapshot();
  EXPECT_EQ(rooms.tree.stats().states, 62);
  EXPECT_EQ(rooms.pools.snapshots().num_free(), 0);
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 60);
  EXPECT_EQ(rooms.room.free_snapshots(), 0);
  ASSERT_TRUE(rooms.room.make_room({.states = 5})) << "requests wait for no idle slot";
  EXPECT_EQ(rooms.pools.snapshots().num_free(), 5);
}

TEST(RoomMaker, OwesNothingThatDependsOnWhatItOwes) {
  // As many middle states as there may be. Where none is of an earlier sequence, each further one
  // takes the place of the state that is worth least by then; older ones are enough for two.
  for (const auto& [began, states_then] : {std::pair(0, 61), std::pair(100, 62)}) {
    Rooms rooms({.num_pages = 200, .page_size = 4, .num_state_slots = 64});
    for (int i = 0; i < 62; ++i) rooms.keep(8, 100 * i, /*middle=*/i < 16);
    for (const int64_t states : {62, states_then}) {
      ASSERT_TRUE(rooms.room.make_room_for_snapshot({.tokens = 64, .spacing = 64},
                                                    static_cast<uint64_t>(began)));
      (void)rooms.pools.take_snapshot();
      EXPECT_EQ(rooms.tree.stats().states, states);
    }
  }
}

TEST(RoomMaker, RunningRequestsTakeTheIdleSlotsToo) {
  Rooms rooms({.num_pages = 200, .page_size = 4, .num_state_slots = 64});
  for (int i = 0; i < 10; ++i) rooms.keep(8, 100 * i);
  for (int i = 0; i < 54; ++i) (void)rooms.pools.take_state();
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 9) << "one in eight of what they leave";
  ASSERT_TRUE(rooms.room.make_room({.states = 3}));
  for (int i = 0; i < 3; ++i) (void)rooms.pools.take_state();
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 7);
  EXPECT_EQ(rooms.room.free_snapshots(), 0);
}

TEST(RoomMaker, OwesNothingForWhatBecameFree) {
  FullRooms rooms;
  ASSERT_TRUE(rooms.room.make_room_for_snapshot({.tokens = 64, .spacing = 64}, 0));
  const int32_t slot = rooms.pools.take_snapshot();
  rooms.pools.snapshots().release(slot);
  rooms.room.evict_owed();
  EXPECT_EQ(rooms.tree.stats().states, 62);
}

TEST(RoomMaker, ASnapshotCostsWhatItsRequestAllows) {
  Rooms rooms({.num_pages = 64, .page_size = 4, .num_state_slots = 1});
  rooms.keep(8, 0);
  EXPECT_FALSE(rooms.room.make_room_for_snapshot({.tokens = 64}, 0)) << "only a free slot";
  EXPECT_EQ(rooms.tree.stats().states, 1);
  EXPECT_TRUE(rooms.room.make_room_for_snapshot({.tokens = 64, .evicts = true}, 0));
  EXPECT_EQ(rooms.tree.stats().states, 0);
  EXPECT_TRUE(rooms.room.make_room_for_snapshot({.tokens = 64}, 0));
}

TEST(CachePools, AFreedSnapshotIsNotSaved) {
  CachePools pools({.num_pages = 4, .num_state_slots = 2, .num_snapshot_slots = 2});
  const int32_t working = pools.take_state();
  const int32_t kept = pools.take_snapshot();
  const int32_t dropped = pools.take_snapshot();
  pools.save_at_next_step(working, kept);
  pools.save_at_next_step(working, dropped);
  pools.snapshots().release(dropped);
  request::BatchPlan plan;
  pools.plan_head(plan);
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].kind, request::MoveKind::kSave);
  EXPECT_EQ(plan.moves[0].to, kept);
  pools.plan_head(plan);
  EXPECT_EQ(plan.moves.size(), 1U) << "a head is planned once";
}

TEST(CachePools, MemoryGoesBackInTheOrderOfPages) {
  CachePools pools({.num_pages = 8,
                    .page_size = 4,
                    .num_state_slots = 2,
                    .page_bytes = 10,
                    .state_slot_bytes = 30,
                    .shared_bytes = 60});
  std::vector<int32_t> pages;
  pools.take_pages(6, pages);
  for (const size_t index : {size_t{4}, size_t{0}, size_t{2}}) {
    pools.pages().ids().free_one(pages[index]);
  }
  (void)pools.take_state();
  request::BatchPlan plan;
  pools.plan_head(plan);
  const auto releases = [](int32_t page) {
    return AllOf(Field(&request::Move::kind, request::MoveKind::kReleasePage),
                 Field(&request::Move::from, page));
  };
  EXPECT_THAT(plan.moves, ElementsAre(releases(pages[0]), releases(pages[2]), releases(pages[4])));
  EXPECT_EQ(pools.bytes_in_use(), 60);
  pools.check_invariants();
}

// Every look at it takes a second.
class TickingClock final : public Clock {
 public:
  [[nodiscard]] double now_seconds() const override { return seconds_++; }

 private:
  mutable double seconds_ = 0;
};

TEST(RoomMakerTest, CountsTheTimeOfEvictionsOnly) {
  Rooms rooms({.num_pages = 10, .page_size = 1, .num_state_slots = 4});
  const TickingClock clock;
  RoomMaker room(rooms.pools, rooms.tree, &clock);
  rooms.keep(8, 100);
  EXPECT_TRUE(room.make_room({.pages = 2}));
  EXPECT_EQ(room.eviction_seconds(), 0) << "there is room";
  EXPECT_TRUE(room.make_room({.pages = 5}));
  EXPECT_EQ(room.eviction_seconds(), 1);
  EXPECT_FALSE(room.make_room({.pages = 11}));
  EXPECT_EQ(room.eviction_seconds(), 1) << "nothing is evicted in vain";
}

TEST(RoomMakerTest, TakesNoTimeWhereAllIsLocked) {
  Rooms rooms({.num_pages = 200, .page_size = 4, .num_state_slots = 64});
  const TickingClock clock;
  RoomMaker room(rooms.pools, rooms.tree, &clock);
  std::vector<PrefixLock> locks;
  for (int i = 0; i < 63; ++i) locks.push_back(rooms.tree.lock(rooms.keep(8, 100 * i), true));
  room.evict_owed();
  EXPECT_EQ(room.eviction_seconds(), 0) << "one slot of two is idle, and no state can go";
  rooms.tree.unlock(locks.back());
  room.evict_owed();
  EXPECT_EQ(room.eviction_seconds(), 1);
  EXPECT_EQ(rooms.tree.stats().states, 62);
  locks.pop_back();
  for (PrefixLock& lock : locks) rooms.tree.unlock(lock);
}

}  // namespace
}  // namespace heddle::cache
