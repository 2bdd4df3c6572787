// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/paged_attention_plan.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace heddle::ops {
namespace {

constexpr int kBlocks = 264;  // two for each multiprocessor of an H200

SplitExtent sequence(int num_tokens) { return {.num_tokens = 1, .begin = 0, .end = num_tokens}; }

// The units of a step, `num_units` of every sequence, on their line.
struct Line {
  Line(const std::vector<SplitExtent>& extents, int num_units, int num_blocks) {
    SplitLoad load;
    for (const SplitExtent& extent : extents) {
      load.add(extent, extent.num_tokens > 0 ? num_units : 0);
    }
    shares = SplitShares::of(load, num_blocks);
    int start = 0;
    for (const SplitExtent& extent : extents) {
      for (int i = 0; i < num_units && extent.num_tokens > 0; ++i) {
        const int length = shares.unit_length(extent);
        units.push_back({.start = start, .length = length, .num_tiles = extent.num_tiles()});
        start += length;
      }
    }
    EXPECT_EQ(start, shares.begin_of(shares.num_shares));
  }

  [[nodiscard]] int tiles_in(const SplitUnit& unit, int share) const {
    return unit.tiles_before(shares.begin_of(share + 1)) -
           unit.tiles_before(shares.begin_of(share));
  }

  std::vector<SplitUnit> units;
  SplitShares shares;
};

Line line_of(const std::vector<int>& lengths, int num_units, int num_blocks = kBlocks) {
  std::vector<SplitExtent> extents;
  for (const int length : lengths) extents.push_back(sequence(length));
  return {extents, num_units, num_blocks};
}

// Compares first_share(), last_share() and split_part() with what each share has of each unit.
void check(const Line& line, int num_blocks) {
  const SplitShares& shares = line.shares;
  ASSERT_GE(shares.num_shares, 1);
  ASSERT_LE(shares.num_shares, num_blocks);
  EXPECT_EQ(shares.begin_of(0), 0);
  for (int share = 0; share < shares.num_shares; ++share) {
    const int begin = shares.begin_of(share), end = shares.begin_of(share + 1);
    ASSERT_LE(end - begin, shares.length + 1);
    ASSERT_GE(end - begin, shares.length);
    ASSERT_TRUE(end - begin <= kShortShare || shares.num_shares == num_blocks || shares.whole);
    if (begin == end) continue;
    EXPECT_EQ(shares.share_of(begin), share);
    EXPECT_EQ(shares.share_of(end - 1), share);
  }
  std::vector<int> part_uses(static_cast<size_t>(2 * shares.num_shares));
  for (const SplitUnit& unit : line.units) {
    const int first = unit.first_share(shares), last = unit.last_share(shares);
    ASSERT_LE(first, last);
    if (shares.whole) {
      ASSERT_EQ(first, last);
    }
    int tiles = 0;
    for (int share = first; share <= last; ++share) {
      ASSERT_GT(line.tiles_in(unit, share), 0)
          << "share " << share << " of " << first << ".." << last;
      EXPECT_EQ(unit.tiles_before(shares.begin_of(share)) == 0, share == first);
      tiles += line.tiles_in(unit, share);
      if (first < last) {
        ++part_uses[static_cast<size_t>(split_part(share, share == first))];
      }
    }
    EXPECT_EQ(tiles, unit.num_tiles) << "all of its tiles lie in these shares";
    EXPECT_TRUE(first == 0 || line.tiles_in(unit, first - 1) == 0);
    EXPECT_TRUE(last + 1 == shares.num_shares || line.tiles_in(unit, last + 1) == 0);
  }
  EXPECT_TRUE(std::ranges::all_of(part_uses, [](int uses) { return uses <= 1; }))
      << "two units have the same part";
}

TEST(SplitPlanTest, TilesBeginAtMultiplesOfTheirTokens) {
  EXPECT_EQ(sequence(1).num_tiles(), 1);
  EXPECT_EQ(sequence(16).num_tiles(), 1);
  EXPECT_EQ(sequence(17).num_tiles(), 2);
  EXPECT_EQ((SplitExtent{.num_tokens = 1, .begin = 15, .end = 17}.num_tiles()), 2);
  EXPECT_EQ((SplitExtent{.num_tokens = 1, .begin = 100, .end = 165}.num_tiles()), 5);
}

TEST(SplitPlanTest, OneLongSequenceIsDividedEvenlyAmongAllBlocks) {
  for (const int num_units : {1, 2, 8}) {
    for (const int length : {20'000, 32'768, 34'001, 40'000, 131'072}) {
      const Line line = line_of({length}, num_units);
      SCOPED_TRACE(fmt::format("{} units of {}", num_units, length));
      EXPECT_EQ(line.shares.num_shares, kBlocks);
      EXPECT_FALSE(line.shares.whole);
      check(line, kBlocks);
    }
  }
}

TEST(SplitPlanTest, ShortSequencesGetFewShares) {
  EXPECT_EQ(line_of({1}, 1).shares.num_shares, 1);
  EXPECT_EQ(line_of({256}, 1).shares.num_shares, 5) << "18 tiles: no warp of a block has two";
  EXPECT_EQ(line_of({80, 1}, 2).shares.num_shares, 5) << "20 tiles, some of them empty";
  EXPECT_EQ(line_of({256}, 2).shares.num_shares, 9);
}

TEST(SplitPlanTest, UnitsThatKeepTheBlocksBusyStayWhole) {
  const auto is_whole = [](const std::vector<int>& lengths, int num_units) {
    const Line line = line_of(lengths, num_units);
    check(line, kBlocks);
    return line.shares.whole;
  };
  EXPECT_TRUE(is_whole(std::vector<int>(132, 4096), 2)) << "one for every block";
  EXPECT_TRUE(is_whole(std::vector<int>(264, 30000), 2)) << "two for every block";
  EXPECT_TRUE(is_whole(std::vector<int>(260, 262), 2)) << "eight blocks have one, not two";
  EXPECT_FALSE(is_whole(std::vector<int>(133, 4096), 2)) << "two would have a turn of their own";
  EXPECT_FALSE(is_whole(std::vector<int>(100, 4096), 2)) << "64 blocks would have none";
  std::vector<int> lengths(264, 1000);
  lengths[7] = 2000;
  EXPECT_FALSE(is_whole(lengths, 1)) << "all would wait for the longest";
}

TEST(SplitPlanTest, AnEighthOfTheTurnsMayBeIdle) {
  // The blocks are busy for as long as the longest unit takes, all others a little less.
  std::vector<int> lengths(264, 8000);
  lengths[0] = 8960;
  EXPECT_TRUE(line_of(lengths, 1).shares.whole);
  lengths[0] = 9056;
  EXPECT_FALSE(line_of(lengths, 1).shares.whole);
}

TEST(SplitPlanTest, HeadsShareALineWhereThatLeavesFewBlocksIdle) {
  EXPECT_EQ(heads_on_a_line(1, kBlocks), 1);
  EXPECT_EQ(heads_on_a_line(2, kBlocks), 2);
  EXPECT_EQ(heads_on_a_line(8, kBlocks), 8);
  EXPECT_EQ(heads_on_a_line(10, kBlocks), 10) << "260 of 264 blocks";
  EXPECT_EQ(heads_on_a_line(40, kBlocks), 20) << "260 blocks; 240 with all 40";
  EXPECT_EQ(heads_on_a_line(277, kBlocks), 1) << "a prime, more than there are blocks";
}

TEST(SplitPlanTest, AStepWithoutUnitsHasAnEmptyShare) {
  const Line line({SplitExtent(), SplitExtent()}, 2, kBlocks);
  EXPECT_EQ(line.shares.num_shares, 1);
  EXPECT_EQ(line.shares.begin_of(1), 0);
}

TEST(SplitPlanTest, EveryTileHasOneShareWhateverTheLengths) {
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    const int num_units = 1 + static_cast<int>(random() % 64);
    const int num_blocks = 1 + static_cast<int>(random() % 300);
    const unsigned longest = 1u << (random() % 17);
    const size_t num_sequences = 1 + random() % (round % 10 == 0 ? 512 : 8);
    std::vector<SplitExtent> extents(num_sequences);
    for (SplitExtent& extent : extents) {
      if (random() % 5 == 0) continue;
      extent.num_tokens = 1;
      extent.begin = static_cast<int>(random() % 3 == 0 ? random() % longest : 0);
      extent.end = extent.begin + 1 + static_cast<int>(random() % longest);
    }
    SCOPED_TRACE(fmt::format("{} sequences of up to {}, {} units, {} blocks", extents.size(),
                             longest, num_units, num_blocks));
    const Line line(extents, num_units, num_blocks);
    check(line, num_blocks);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::ops
