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

using enum MemoryKind;
using Ids = std::vector<int32_t>;

constexpr MemoryBudget::Options kOptions{
    .pools = {{{{.num_ids = 10, .bytes_each = 10}, {.num_ids = 3, .bytes_each = 30}, {}}}},
    .shared_bytes = 100};

TEST(MemoryBudgetTest, MovesMemoryFromIdleIdsToThoseThatNeedSome) {
  MemoryBudget budget(kOptions);
  ReleasedIds released;
  const Ids slots = {2, 1};
  ASSERT_TRUE(budget.commit(kStates, slots, released));
  ASSERT_TRUE(budget.commit(kPages, Ids{5, 6, 7, 8}, released));
  EXPECT_EQ(budget.committed_bytes(), 100);
  EXPECT_FALSE(budget.commit(kPages, Ids{9}, released));
  EXPECT_EQ(budget.bytes_in_use(), 100) << "nothing changed";

  budget.free(kStates, slots);
  EXPECT_EQ(budget.committed_bytes(), 100);
  EXPECT_FALSE(budget.commit(kPages, Ids{1, 2, 3, 4, 9, 10, 11}, released)) << "70 more, 60 left";
  EXPECT_THAT(released[kStates], IsEmpty());
  ASSERT_TRUE(budget.commit(kPages, Ids{9}, released));
  EXPECT_THAT(released[kStates], ElementsAre(2)) << "idle longest";
  EXPECT_FALSE(budget.committed(kStates, 2));
  EXPECT_EQ(budget.committed_bytes(), 80);
  ASSERT_TRUE(budget.commit(kStates, Ids{1}, released)) << "idle: costs nothing";
  EXPECT_EQ(budget.committed_bytes(), 80);
  EXPECT_EQ(released[kStates].size(), 1u);
  budget.check_invariants();
}

TEST(MemoryBudgetTest, TakesFromItsOwnPoolWhenTheOthersHaveNothingIdle) {
  MemoryBudget budget(kOptions);
  ReleasedIds released;
  ASSERT_TRUE(budget.commit(kPages, Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, released));
  budget.free(kPages, Ids{7, 3});
  ASSERT_FALSE(budget.commit(kStates, Ids{1}, released));
  budget.free(kPages, Ids{1});
  ASSERT_TRUE(budget.commit(kStates, Ids{1}, released));
  EXPECT_THAT(released[kPages], ElementsAre(7, 3, 1));

  // Slot 2 idles, slot 3 is wanted: slot 2 goes.
  MemoryBudget small({.pools = {{{{}, {.num_ids = 3, .bytes_each = 30}, {}}}}, .shared_bytes = 40});
  released = {};
  ASSERT_TRUE(small.commit(kStates, Ids{2}, released));
  small.free(kStates, Ids{2});
  ASSERT_TRUE(small.commit(kStates, Ids{3}, released));
  EXPECT_THAT(released[kStates], ElementsAre(2));
}

TEST(MemoryBudgetTest, LimitsNothingWhereAllIdsFit) {
  const MemoryBudget::Pool two{.num_ids = 2, .bytes_each = 10};
  MemoryBudget budget({.pools = {{{two, two, two}}}});
  ReleasedIds released;
  for (const MemoryKind kind : kMemoryKinds) {
    EXPECT_TRUE(budget.commit(kind, Ids{1, 2}, released));
    EXPECT_THAT(released[kind], IsEmpty());
  }
  EXPECT_EQ(budget.committed_bytes(), 60);
}

// Ids with the time since which they idle, searched from end to end.
struct NaivePool {
  NaivePool() = default;

  explicit NaivePool(const MemoryBudget::Pool& pool)
      : bytes_each(pool.bytes_each),
        idle_since(static_cast<size_t>(pool.num_ids) + 1, kUncommitted) {}

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

  int64_t bytes_each = 0;
  std::vector<int64_t> idle_since;
};

TEST(MemoryBudgetTest, AgreesWithANaiveCount) {
  std::mt19937_64 random(11);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 60; ++round) {
    MemoryBudget::Options options{.shared_bytes = 1 + below(700)};
    options.pools[kPages] = {.num_ids = below(40), .bytes_each = 1 + below(20)};
    options.pools[kStates] = {.num_ids = below(12), .bytes_each = 1 + below(90)};
    if (round % 3 > 0) {
      options.pools[kSnapshots] = {.num_ids = below(20), .bytes_each = 1 + below(40)};
    }
    MemoryBudget budget(options);
    PerMemoryKind<NaivePool> naive;
    for (const MemoryKind kind : kMemoryKinds) naive[kind] = NaivePool(options.pools[kind]);
    const auto bytes = [&](bool also_idle) {
      int64_t total = 0;
      for (const NaivePool& pool : naive.values) total += pool.bytes(also_idle);
      return total;
    };
    int64_t time = 0;
    for (int step = 0; step < 500; ++step) {
      SCOPED_TRACE(fmt::format("round {} step {}", round, step));
      const MemoryKind user = kMemoryKinds[static_cast<size_t>(below(3))];
      NaivePool& mine = naive[user];
      const bool freeing = below(5) < 2;
      Ids ids;
      for (int32_t id = 1; id < std::ssize(mine.idle_since); ++id) {
        const bool in_use = mine.idle_since[static_cast<size_t>(id)] == NaivePool::kInUse;
        if (in_use == freeing && below(6) == 0) ids.push_back(id);
      }
      std::shuffle(ids.begin(), ids.end(), random);
      if (freeing) {
        budget.free(user, ids);
        for (const int32_t id : ids) mine.idle_since[static_cast<size_t>(id)] = time++;
      } else {
        const bool fits = bytes(false) + std::ssize(ids) * mine.bytes_each <= options.shared_bytes;
        ReleasedIds released;
        ASSERT_EQ(budget.commit(user, ids, released), fits);
        ReleasedIds expected;
        if (fits) {
          for (const int32_t id : ids) {
            mine.idle_since[static_cast<size_t>(id)] = NaivePool::kInUse;
          }
          while (bytes(true) > options.shared_bytes) {
            bool done = false;
            for (const MemoryKind kind : kMemoryKinds) {
              done = done || (kind != user && naive[kind].release_oldest(expected[kind]));
            }
            ASSERT_TRUE(done || mine.release_oldest(expected[user]));
          }
        }
        ASSERT_EQ(released.values, expected.values);
      }
      ASSERT_EQ(budget.bytes_in_use(), bytes(false));
      ASSERT_EQ(budget.committed_bytes(), bytes(true));
      ASSERT_LE(budget.committed_bytes(), options.shared_bytes);
      budget.check_invariants();
    }
  }
}

}  // namespace
}  // namespace heddle::cache
