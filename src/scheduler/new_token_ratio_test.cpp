// SPDX-License-Identifier: Apache-2.0
#include "scheduler/new_token_ratio.h"

#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

TEST(NewTokenRatioTest, SchedulerSpec71) {
  NewTokenRatio ratio(1);
  EXPECT_DOUBLE_EQ(ratio.initial(), 0.7);
  EXPECT_DOUBLE_EQ(ratio.minimum(), 0.098);
  ratio.decay();
  EXPECT_NEAR(0.7 - ratio.value(), 0.00100333, 5e-9);
  for (int pass = 1; pass < 100; ++pass) ratio.decay();
  EXPECT_NEAR(ratio.value(), 0.599667, 5e-7);
  for (int pass = 100; pass < 599; ++pass) ratio.decay();
  EXPECT_GT(ratio.value(), 0.0985);
  for (int pass = 599; pass < 1000; ++pass) ratio.decay();
  EXPECT_DOUBLE_EQ(ratio.value(), 0.098);
  ratio.reset();
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
}

TEST(NewTokenRatioTest, ConservativenessScalesItUpToOne) {
  EXPECT_DOUBLE_EQ(NewTokenRatio(0.3).value(), 0.21);
  EXPECT_DOUBLE_EQ(NewTokenRatio(5).value(), 1);
  EXPECT_DOUBLE_EQ(NewTokenRatio(5).minimum(), 0.14);
}

TEST(NewTokenRatioTest, SchedulerSpec73Ratios) {
  EXPECT_NEAR(NewTokenRatio::estimate(50 + 10, 200 + 500, 2), 0.142653, 5e-7);
  EXPECT_NEAR(NewTokenRatio::estimate(50, 200, 1), 0.348259, 5e-7);
  EXPECT_DOUBLE_EQ(NewTokenRatio::estimate(500, 200, 1), 1);
}

TEST(NewTokenRatioTest, SchedulerSpec7DeviationARetractionNeverLowersIt) {
  NewTokenRatio ratio(1);
  ratio.after_retraction(50 + 10, 200 + 500, 2);
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7) << "the reference goes down to 0.142653";
  for (int pass = 0; pass < 600; ++pass) ratio.decay();
  ratio.after_retraction(50, 200, 1);
  EXPECT_NEAR(ratio.value(), 0.348259, 5e-7);
}

TEST(NewTokenRatioTest, ReservesAShareOfWhatMayStillBeDrawn) {
  const NewTokenRatio ratio(1);
  EXPECT_NEAR(ratio.reserve(1000, 100), 630, 1e-9);
  EXPECT_NEAR(ratio.reserve(9000, 0), 2867.2, 1e-9);
  EXPECT_EQ(ratio.reserve(100, 100), 0);
  EXPECT_EQ(new_tokens_left(100, 101), 0);
}

}  // namespace
}  // namespace heddle::scheduler
