// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_odds.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

// How many of `num_drafts` hold, by the chances of their places.
int64_t roll(const std::vector<double>& chances, int64_t num_drafts, std::mt19937& random) {
  std::uniform_real_distribution<double> dice(0, 1);
  int64_t held = 0;
  while (held < num_drafts && dice(random) < chances[static_cast<size_t>(held)]) ++held;
  return held;
}

TEST(DraftOddsTest, ExpectsTheSameAtEveryPositionAtFirst) {
  const DraftOdds odds;
  for (const int64_t place : {0, 1, 7, 63}) {
    EXPECT_DOUBLE_EQ(odds.chance(place, 1), DraftOdds::kExpected);
  }
  EXPECT_DOUBLE_EQ(odds.expected_tokens(0, 1), 1);
  EXPECT_DOUBLE_EQ(odds.expected_tokens(2, 1), 1 + 0.7 + 0.49);
  EXPECT_DOUBLE_EQ(DraftOdds::AcceptanceTrend().value(), 1);
}

TEST(DraftOddsTest, PlacesAreLearnedEachByItself) {
  const std::vector<double> chances = {0.9, 0.7, 0.4};
  std::mt19937 random(1);
  DraftOdds odds;
  DraftOdds::AcceptanceTrend trend;
  std::vector<double> mean(3);
  constexpr int kSteps = 2000;
  for (int step = 0; step < kSteps; ++step) {
    odds.verified(trend, 3, roll(chances, 3, random));
    for (size_t i = 0; i < 3; ++i) mean[i] += odds.chance(static_cast<int64_t>(i), 1) / kSteps;
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(mean[i], chances[i], 0.05) << i;
  EXPECT_NEAR(odds.chance(3, 1), odds.chance(2, 1), 1e-12) << "never seen: as the one before";
}

TEST(DraftOddsTest, AFewFailuresLowerAllPlaces) {
  DraftOdds odds;
  DraftOdds::AcceptanceTrend trend;
  for (int i = 0; i < 8; ++i) odds.verified(trend, 3, 0);
  EXPECT_LT(odds.chance(0, 1), 0.25);
  EXPECT_LT(odds.chance(2, 1), 0.25) << "nothing was seen there, and less is expected";
  EXPECT_LT(odds.expected_tokens(3, 1), 1.35);
}

TEST(DraftOddsTest, StreamsHaveTrendsOfTheirOwn) {
  std::mt19937 random(2);
  DraftOdds odds;
  DraftOdds::AcceptanceTrend good;
  DraftOdds::AcceptanceTrend bad;
  for (int step = 0; step < 200; ++step) {
    odds.verified(good, 3, roll({0.95, 0.95, 0.95}, 3, random));
    odds.verified(bad, 3, roll({0.1, 0.1, 0.1}, 3, random));
  }
  EXPECT_GT(good.value(), 1.1);
  EXPECT_LT(bad.value(), 0.6);
  EXPECT_GT(odds.expected_tokens(3, good.value()), 2.5);
  EXPECT_LT(odds.expected_tokens(3, bad.value()), 1.6);
  EXPECT_LT(odds.chance(0, 100), 1) << "no trend makes a draft certain";
}

TEST(DraftOddsTest, WithoutDraftsOddsAndTrendReturnToTheExpectation) {
  DraftOdds odds;
  DraftOdds::AcceptanceTrend trend;
  for (int step = 0; step < 100; ++step) odds.verified(trend, 3, 0);
  const double low = odds.chance(0, 1);
  double last = low;
  int num_steps = 0;
  for (; odds.chance(0, 1) < 0.6; ++num_steps) {
    odds.fade();
    trend.fade();
    ASSERT_GT(odds.chance(0, 1), last);
    last = odds.chance(0, 1);
  }
  EXPECT_GT(num_steps, 300) << "what failed is not tried again at once";
  EXPECT_LT(num_steps, 3000);
  EXPECT_GT(trend.value(), 0.99);
}

}  // namespace
}  // namespace heddle::speculative
