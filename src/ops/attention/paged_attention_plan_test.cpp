// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/paged_attention_plan.h"

#include <cstdint>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/attention/paged_attention_split.h"

namespace heddle::ops {
namespace {

constexpr int kBlocks = 264;  // two for each multiprocessor of an H100
constexpr int kItemColumns = 8;

SplitExtent sequence(int num_tokens) { return {.num_tokens = 1, .begin = 0, .end = num_tokens}; }

// Of sequences with so many items each.
SplitLoad load_of(const std::vector<int>& lengths, int num_items) {
  SplitLoad load;
  for (const int length : lengths) load.add(sequence(length), num_items);
  return load;
}

int split_of(const std::vector<int>& lengths, int num_items = 1) {
  return split_length(load_of(lengths, num_items), kBlocks);
}

// Whether no sequence of the step is cut.
bool takes_whole(const std::vector<int>& lengths, int num_items = 1) {
  const int split = split_of(lengths, num_items);
  for (const int length : lengths) {
    if (sequence(length).num_splits(split) > 1) return false;
  }
  return true;
}

TEST(SplitPlanTest, SplitsCoverASequence) {
  EXPECT_EQ(sequence(1).num_splits(64), 1);
  EXPECT_EQ(sequence(64).num_splits(64), 1);
  EXPECT_EQ(sequence(65).num_splits(64), 2);
  EXPECT_EQ((SplitExtent{.num_tokens = 1, .begin = 100, .end = 165}.num_splits(64)), 2);
  EXPECT_EQ(SplitExtent().num_splits(64), 0) << "it is not computed here";
}

TEST(SplitPlanTest, AFewLongSequencesAreCutForManyBlocks) {
  EXPECT_EQ(split_of({80, 1}), 64);
  EXPECT_EQ(split_of({256 * 64}), 64);
  EXPECT_EQ(split_of({256 * 64 + 1}), 128);
  EXPECT_EQ(split_of({1024 * 256}), 256) << "items no longer than that up to 1,024 of them";
  EXPECT_EQ(split_of({1024 * 256 + 1}), 512);
}

TEST(SplitPlanTest, SequencesThatFillTheBlocksAreTakenWhole) {
  EXPECT_TRUE(takes_whole(std::vector<int>(132, 4096), 2)) << "an item for every block";
  EXPECT_TRUE(takes_whole(std::vector<int>(264, 30000), 2)) << "two for every one";
  EXPECT_TRUE(takes_whole(std::vector<int>(260, 262), 2)) << "eight blocks have one item, not two";
}

TEST(SplitPlanTest, SequencesThatLeaveBlocksIdleAreCut) {
  EXPECT_FALSE(takes_whole(std::vector<int>(133, 4096), 2))
      << "two items would have a turn of their own";
  EXPECT_FALSE(takes_whole(std::vector<int>(100, 4096), 2)) << "64 blocks would have none";
  std::vector<int> lengths(264, 1000);
  lengths[7] = 2000;
  EXPECT_FALSE(takes_whole(lengths)) << "all would wait for the longest";
}

TEST(SplitPlanTest, AnEighthOfTheTurnsMayBeIdle) {
  // The blocks are busy for as long as the longest sequence takes, all others a little less.
  std::vector<int> lengths(264, 8000);
  lengths[0] = 8990;
  EXPECT_TRUE(takes_whole(lengths));
  lengths[0] = 9010;
  EXPECT_FALSE(takes_whole(lengths));
}

TEST(SplitPlanTest, TheLongestSequenceNeverShortensASplit) {
  EXPECT_EQ(split_of(std::vector<int>(264, 3)), 64);
}

// The workspace has room for the parts that are kept until they are joined.
TEST(SplitPlanTest, NoStepHasMorePartsThanAreKept) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const int num_items = 1 + static_cast<int>(random() % 64);
    std::vector<int> lengths(1 + random() % kSplitSequences);
    const unsigned longest = 1u << (random() % 18);
    for (int& length : lengths) length = 1 + static_cast<int>(random() % longest);
    SCOPED_TRACE(
        fmt::format("{} sequences of up to {}, {} items", lengths.size(), longest, num_items));
    const int split = split_of(lengths, num_items);
    int64_t num_parts = 0;
    for (const int length : lengths) {
      const int num_splits = sequence(length).num_splits(split);
      if (num_splits > 1) num_parts += int64_t{num_splits} * num_items * kItemColumns;
    }
    ASSERT_LE(num_parts, kSplitParts);
  }
}

}  // namespace
}  // namespace heddle::ops
