// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_cost.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

using Stream = DraftCost::Stream;

// So many equal steps that their time is known.
void know(DraftCost& cost, int64_t num_streams, int64_t num_rows, double seconds) {
  for (int64_t i = 0; i < DraftCost::kTries; ++i) cost.add(num_streams, num_rows, seconds);
}

// Plays steps of one stream whose time is `fixed` and `each` for every row, and whose drafts hold
// as often as `share` says; returns the depth after many of them.
int64_t settled_depth(double fixed, double each, double share, int64_t num_drafts = 63) {
  DraftCost cost;
  const std::vector<Stream> streams = {{.num_drafts = num_drafts, .share = share}};
  int64_t depth = 0;
  for (int step = 0; step < 200; ++step) {
    depth = cost.best_depth(streams);
    const int64_t rows = 1 + std::min(depth, num_drafts);
    cost.add(1, rows, fixed + each * static_cast<double>(rows));
  }
  return depth;
}

TEST(DraftCostTest, NothingIsDraftedBeforeAPlainStepWasSeen) {
  DraftCost cost;
  const std::vector<Stream> streams = {{.num_drafts = 3, .share = 1}};
  EXPECT_EQ(cost.best_depth(streams), 0);
  know(cost, 1, 4, 1e-3);
  EXPECT_EQ(cost.best_depth(streams), 0);
  know(cost, 1, 1, 1e-3);
  EXPECT_EQ(cost.best_depth(streams), 1);
  EXPECT_EQ(cost.best_depth({}), 0);
}

TEST(DraftCostTest, RowsThatCostNothingAreAllTaken) { EXPECT_EQ(settled_depth(1e-3, 0, 0.9), 63); }

TEST(DraftCostTest, RowsThatCostAsMuchAsStepsAreNotTaken) {
  EXPECT_EQ(settled_depth(0, 1e-3, 0.9), 0);
}

TEST(DraftCostTest, DepthFollowsWhatHolds) {
  const int64_t often = settled_depth(1e-3, 1e-4, 0.95);
  const int64_t seldom = settled_depth(1e-3, 1e-4, 0.5);
  EXPECT_GE(often, 7);
  EXPECT_GE(seldom, 1);
  EXPECT_LE(seldom, 3);
  EXPECT_EQ(settled_depth(1e-3, 1e-4, 0.05), 0);
}

TEST(DraftCostTest, ManyStreamsMayHaveAnotherDepthThanOne) {
  DraftCost cost;
  const std::vector<Stream> one(1, {.num_drafts = 3, .share = 0.7});
  const std::vector<Stream> many(32, {.num_drafts = 3, .share = 0.7});
  for (int step = 0; step < 50; ++step) {
    cost.add(1, 1 + cost.best_depth(one), 1e-3);
    const int64_t rows = 32 * (1 + cost.best_depth(many));
    cost.add(32, rows, 1e-4 * static_cast<double>(rows));
  }
  EXPECT_EQ(cost.best_depth(one), 3);
  EXPECT_EQ(cost.best_depth(many), 0);
}

TEST(DraftCostTest, OneSlowStepDoesNotDecide) {
  DraftCost cost;
  const std::vector<Stream> streams = {{.num_drafts = 3, .share = 0.9}};
  for (int64_t rows = 1; rows <= 3; ++rows) know(cost, 1, rows, 1e-3);
  for (int step = 0; step < 10; ++step) cost.add(1, 4, 1.2e-3);
  cost.add(1, 4, 1);
  EXPECT_LT(cost.seconds(1, 4), 1.6e-3);
  EXPECT_EQ(cost.best_depth(streams), 2);
  for (int step = 0; step < 10; ++step) cost.add(1, 4, 1.2e-3);
  EXPECT_EQ(cost.best_depth(streams), 3);
}

TEST(DraftCostTest, TheFirstStepsOfAShapeMayBeSlow) {
  DraftCost cost;
  const std::vector<Stream> streams = {{.num_drafts = 1, .share = 0.9}};
  know(cost, 1, 1, 1e-3);
  cost.add(1, 2, 20e-3);  // loads
  EXPECT_EQ(cost.best_depth(streams), 1);
  cost.add(1, 2, 50e-3);  // captures
  EXPECT_EQ(cost.best_depth(streams), 1);
  cost.add(1, 2, 1.2e-3);
  EXPECT_EQ(cost.seconds(1, 2), 1.2e-3);
  EXPECT_EQ(cost.best_depth(streams), 1);
}

TEST(DraftCostTest, TimesAreForgottenAndMeasuredAgain) {
  DraftCost cost;
  const std::vector<Stream> streams = {{.num_drafts = 3, .share = 0.9}};
  know(cost, 1, 1, 1e-3);
  know(cost, 1, 2, 1);
  EXPECT_EQ(cost.best_depth(streams), 0);
  for (int64_t step = 0; step <= DraftCost::kRemembered; ++step) cost.add(1, 1, 1e-3);
  EXPECT_EQ(cost.best_depth(streams), 1);
}

TEST(DraftCostTest, TriesCostLittleWhereNothingHolds) {
  DraftCost cost;
  const std::vector<Stream> streams = {{.num_drafts = 7, .share = 0.1}};
  int64_t rows = 0;
  for (int step = 0; step < 1000; ++step) {
    const int64_t drafts = cost.best_depth(streams);
    rows += drafts;
    cost.add(1, 1 + drafts, 1e-3 * static_cast<double>(1 + drafts));
  }
  EXPECT_LE(rows, 3 * DraftCost::kTries + 3);
}

}  // namespace
}  // namespace heddle::speculative
