// SPDX-License-Identifier: Apache-2.0
#include "cache/memory_budget.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr MemoryBudget::Options kOptions{
    .num_pages = 10, .num_slots = 3, .page_bytes = 10, .slot_bytes = 30, .shared_bytes = 100};

TEST(MemoryBudgetTest, MovesMemoryFromIdleIdsToThoseThatNeedSome) {
  MemoryBudget budget(kOptions);
  ReleasedIds released;
  const std::vector<int32_t> slots = {2, 1};
  const std::vector<int32_t> pages = {5, 6, 7, 8};
  ASSERT_TRUE(budget.commit_slots(slots, released));
  ASSERT_TRUE(budget.commit_pages(pages, released));
  EXPECT_EQ(budget.committed_bytes(), 100);
  EXPECT_FALSE(budget.can_commit_pages(1));
  EXPECT_FALSE(budget.commit_pages(std::vector<int32_t>{9}, released));
  EXPECT_EQ(budget.bytes_in_use(), 100) << "nothing changed";

  budget.free_slots(slots);
  EXPECT_EQ(budget.committed_bytes(), 100);
  EXPECT_TRUE(budget.can_commit_pages(6));
  EXPECT_FALSE(budget.can_commit_pages(7));
  EXPECT_THAT(released.slots, IsEmpty());
  ASSERT_TRUE(budget.commit_pages(std::vector<int32_t>{9}, released));
  EXPECT_THAT(released.slots, ElementsAre(2)) << "idle longest";
  EXPECT_FALSE(budget.slot_committed(2));
  EXPECT_EQ(budget.committed_bytes(), 80);
  ASSERT_TRUE(budget.commit_slots(std::vector<int32_t>{1}, released)) << "idle: costs nothing";
  EXPECT_EQ(budget.committed_bytes(), 80);
  EXPECT_EQ(released.slots.size(), 1u);
  budget.check_invariants();
}

TEST(MemoryBudgetTest, TakesFromItsOwnPoolWhenTheOtherHasNothingIdle) {
  MemoryBudget budget(kOptions);
  ReleasedIds released;
  std::vector<int32_t> pages = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  ASSERT_TRUE(budget.commit_pages(pages, released));
  budget.free_pages(std::vector<int32_t>{7, 3});
  ASSERT_FALSE(budget.commit_slots(std::vector<int32_t>{1}, released));
  budget.free_pages(std::vector<int32_t>{1});
  ASSERT_TRUE(budget.commit_slots(std::vector<int32_t>{1}, released));
  EXPECT_THAT(released.pages, ElementsAre(7, 3, 1));

  // Slot 2 idles, slot 3 is wanted: slot 2 goes.
  MemoryBudget small({.num_slots = 3, .slot_bytes = 30, .shared_bytes = 40});
  released = {};
  ASSERT_TRUE(small.commit_slots(std::vector<int32_t>{2}, released));
  small.free_slots(std::vector<int32_t>{2});
  ASSERT_TRUE(small.commit_slots(std::vector<int32_t>{3}, released));
  EXPECT_THAT(released.slots, ElementsAre(2));
}

TEST(MemoryBudgetTest, LimitsNothingWhereAllIdsFit) {
  MemoryBudget budget({.num_pages = 2, .num_slots = 2, .page_bytes = 10, .slot_bytes = 10});
  ReleasedIds released;
  EXPECT_TRUE(budget.can_commit_pages(1 << 30));
  EXPECT_TRUE(budget.commit_pages(std::vector<int32_t>{1, 2}, released));
  EXPECT_TRUE(budget.commit_slots(std::vector<int32_t>{1, 2}, released));
  EXPECT_THAT(released.pages, IsEmpty());
  EXPECT_EQ(budget.committed_bytes(), 40);
}

// Ids with the time since which they idle, searched from end to end.
struct NaivePool {
  explicit NaivePool(int64_t count, int64_t bytes) : bytes_each(bytes), idle_since(ids(count)) {}

  static std::vector<int64_t> ids(int64_t count) {
    return std::vector<int64_t>(static_cast<size_t>(count) + 1, kUncommitted);
  }

  static constexpr int64_t kUncommitted = -2;
  static constexpr int64_t kInUse = -1;

  [[nodiscard]] int64_t bytes(bool also_idle) const {
    int64_t total = 0;
    for (const int64_t since : idle_since) {
      if (since == kInUse || (also_idle && since >= 0)) total += bytes_each;
    }
    return total;
  }

  bool release_oldest(std::vector<int32_t>& released) {
    int32_t oldest = 0;
    for (int32_t id = 1; id < std::ssize(idle_since); ++id) {
      const int64_t since = idle_since[static_cast<size_t>(id)];
      if (since >= 0 && (oldest == 0 || since < idle_since[static_cast<size_t>(oldest)])) {
        oldest = id;
      }
    }
    if (oldest == 0) return false;
    idle_since[static_cast<size_t>(oldest)] = kUncommitted;
    released.push_back(oldest);
    return true;
  }

  int64_t bytes_each;
  std::vector<int64_t> idle_since;
};

TEST(MemoryBudgetTest, AgreesWithANaiveCount) {
  std::mt19937_64 random(11);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 40; ++round) {
    const MemoryBudget::Options options{.num_pages = below(40),
                                        .num_slots = below(12),
                                        .page_bytes = 1 + below(20),
                                        .slot_bytes = 1 + below(90),
                                        .shared_bytes = 1 + below(700)};
    MemoryBudget budget(options);
    NaivePool naive[2] = {NaivePool(options.num_pages, options.page_bytes),
                          NaivePool(options.num_slots, options.slot_bytes)};
    int64_t time = 0;
    for (int step = 0; step < 500; ++step) {
      SCOPED_TRACE(fmt::format("round {} step {}", round, step));
      const bool pages = below(2) == 0;
      NaivePool& mine = naive[pages ? 0 : 1];
      NaivePool& other = naive[pages ? 1 : 0];
      const bool freeing = below(5) < 2;
      std::vector<int32_t> ids;
      for (int32_t id = 1; id < std::ssize(mine.idle_since); ++id) {
        const bool in_use = mine.idle_since[static_cast<size_t>(id)] == NaivePool::kInUse;
        if (in_use == freeing && below(6) == 0) ids.push_back(id);
      }
      std::shuffle(ids.begin(), ids.end(), random);
      if (freeing) {
        if (pages) budget.free_pages(ids);
        if (!pages) budget.free_slots(ids);
        for (const int32_t id : ids) mine.idle_since[static_cast<size_t>(id)] = time++;
      } else {
        const int64_t in_use = mine.bytes(false) + other.bytes(false);
        const bool fits = in_use + std::ssize(ids) * mine.bytes_each <= options.shared_bytes;
        const auto count = std::ssize(ids);
        ASSERT_EQ(pages ? budget.can_commit_pages(count) : budget.can_commit_slots(count), fits);
        ReleasedIds released;
        ASSERT_EQ(pages ? budget.commit_pages(ids, released) : budget.commit_slots(ids, released),
                  fits);
        std::vector<int32_t> expected[2];
        if (fits) {
          for (const int32_t id : ids) {
            mine.idle_since[static_cast<size_t>(id)] = NaivePool::kInUse;
          }
          while (mine.bytes(true) + other.bytes(true) > options.shared_bytes) {
            ASSERT_TRUE(other.release_oldest(expected[1]) || mine.release_oldest(expected[0]));
          }
        }
        ASSERT_EQ(pages ? released.pages : released.slots, expected[0]);
        ASSERT_EQ(pages ? released.slots : released.pages, expected[1]);
      }
      ASSERT_EQ(budget.bytes_in_use(), naive[0].bytes(false) + naive[1].bytes(false));
      ASSERT_EQ(budget.committed_bytes(), naive[0].bytes(true) + naive[1].bytes(true));
      ASSERT_LE(budget.committed_bytes(), options.shared_bytes);
      budget.check_invariants();
    }
  }
}

}  // namespace
}  // namespace heddle::cache
