// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/page_allocator.h"
#include "cache/state_allocator.h"

namespace heddle::cache {
namespace {

using ::testing::ElementsAre;

TEST(PageAllocatorTest, HandsOutIdsFromOneAndNeverTheSink) {
  PageAllocator pages(3, 16);
  std::vector<int32_t> taken;
  ASSERT_TRUE(pages.allocate(3, taken));
  EXPECT_THAT(taken, ElementsAre(1, 2, 3));
  EXPECT_EQ(pages.num_free(), 0);
}

TEST(PageAllocatorTest, TakesAllOrNothing) {
  PageAllocator pages(3, 16);
  std::vector<int32_t> taken;
  ASSERT_TRUE(pages.allocate(2, taken));
  EXPECT_FALSE(pages.allocate(2, taken));
  EXPECT_THAT(taken, ElementsAre(1, 2));
  EXPECT_EQ(pages.num_free(), 1);
}

TEST(PageAllocatorTest, GrowsASequenceByWholePages) {
  PageAllocator pages(4, 16);
  std::vector<int32_t> taken;
  ASSERT_TRUE(pages.grow(16, taken));
  EXPECT_THAT(taken, ElementsAre(1));
  ASSERT_TRUE(pages.grow(17, taken));
  EXPECT_THAT(taken, ElementsAre(1, 2));
  ASSERT_TRUE(pages.grow(5, taken));  // never shrinks
  EXPECT_THAT(taken, ElementsAre(1, 2));
  EXPECT_FALSE(pages.grow(65, taken));
  EXPECT_THAT(taken, ElementsAre(1, 2));
  pages.release(taken);
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(pages.num_used(), 0);
}

TEST(PageAllocatorTest, ReusesTheWarmestIdsFirst) {
  PageAllocator pages(100, 16);
  std::vector<int32_t> first, second;
  ASSERT_TRUE(pages.allocate(3, first));
  pages.release(first);
  ASSERT_TRUE(pages.allocate(3, second));
  EXPECT_THAT(second, ElementsAre(1, 2, 3));
}

TEST(StateAllocatorTest, CountsGenerationsAndForgetsTheLabel) {
  StateAllocator states(1);
  const int32_t slot = states.allocate();
  ASSERT_EQ(slot, 1);
  EXPECT_EQ(states.ids().generation(slot), 1u);
  states.set_label(slot, 640);
  EXPECT_EQ(states.allocate(), 0);
  states.release(slot);
  ASSERT_EQ(states.allocate(), 1);
  EXPECT_EQ(states.ids().generation(slot), 2u);
  EXPECT_EQ(states.label(slot), 0);
}

TEST(StateAllocatorTest, IsEmptyForModelsWithoutState) {
  StateAllocator states(0);
  EXPECT_EQ(states.allocate(), 0);
  states.check_invariants();
}

TEST(IdPoolDeathTest, AbortsNamingTheIdOnADoubleFreeAndOnForeignIds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  IdPool pool("KV page", 4);
  const int32_t id = pool.allocate_one();
  pool.free_one(id);
  EXPECT_DEATH(pool.free_one(id), "KV page 1 is free");
  EXPECT_DEATH(pool.free_one(0), "KV page 0 of 4");
  EXPECT_DEATH(pool.free_one(5), "KV page 5 of 4");
  EXPECT_DEATH(pool.move(2, Owner::kRequest, Owner::kTree), "KV page 2");
}

// Against a plain set of owners, with moves between them.
TEST(IdPoolTest, AgreesWithANaiveModelOverRandomOperations) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const auto size = static_cast<int64_t>(below(40));
    IdPool pool("slot", size);
    std::map<int32_t, Owner> owned;
    std::map<int32_t, uint32_t> generations;
    for (int operation = 0; operation < 2000; ++operation) {
      switch (below(4)) {
        case 0: {
          const auto count = static_cast<int64_t>(below(6));
          std::vector<int32_t> ids;
          const bool fits = count <= size - static_cast<int64_t>(owned.size());
          ASSERT_EQ(pool.allocate(count, ids), fits);
          ASSERT_EQ(ids.size(), fits ? static_cast<size_t>(count) : 0u);
          for (const int32_t id : ids) {
            ASSERT_TRUE(id >= 1 && id <= size);
            ASSERT_TRUE(owned.emplace(id, Owner::kRequest).second) << id << " was handed out twice";
            ASSERT_EQ(pool.generation(id), ++generations[id]);
          }
          break;
        }
        case 1: {
          const int32_t id = pool.allocate_one();
          ASSERT_EQ(id != 0, static_cast<int64_t>(owned.size()) < size);
          if (id == 0) break;
          ASSERT_TRUE(owned.emplace(id, Owner::kRequest).second);
          ASSERT_EQ(pool.generation(id), ++generations[id]);
          break;
        }
        case 2: {
          std::vector<int32_t> ids;
          for (auto it = owned.begin(); it != owned.end();) {
            if (below(4) != 0) {
              ++it;
              continue;
            }
            ids.push_back(it->first);
            it = owned.erase(it);
          }
          std::shuffle(ids.begin(), ids.end(), random);
          pool.free(ids);
          break;
        }
        default:
          for (auto& [id, owner] : owned) {
            const auto next = static_cast<Owner>(1 + below(kNumOwners - 1));
            pool.move(id, owner, next);
            owner = next;
          }
      }
      std::array<int64_t, kNumOwners> counts{};
      for (const auto& [id, owner] : owned) ++counts[static_cast<size_t>(owner)];
      for (size_t i = 1; i < counts.size(); ++i) {
        ASSERT_EQ(pool.count(static_cast<Owner>(i)), counts[i]);
      }
      ASSERT_EQ(pool.num_used(), static_cast<int64_t>(owned.size()));
      pool.check_invariants();
    }
  }
}

}  // namespace
}  // namespace heddle::cache
