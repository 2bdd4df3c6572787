// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_cost.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

using Stream = DraftCost::Stream;

class DraftCostTest : public ::testing::Test {
 protected:
  // So many equal steps that their time is known; each yields what takes plain steps as long.
  void know(int64_t num_streams, int64_t num_rows, double seconds) {
    const double plain = cost_.plain_seconds(num_streams);
    const double plain_steps = plain > 0 ? seconds / plain : 1;
    for (int64_t i = 0; i < DraftCost::kPlainTries; ++i) {
      cost_.add({.num_streams = num_streams,
                 .num_rows = num_rows,
                 .num_tokens = static_cast<int64_t>(
                     std::ceil(plain_steps * static_cast<double>(num_streams))),
                 .seconds = seconds});
    }
  }

  [[nodiscard]] int64_t best_depth(int64_t num_streams, int64_t num_drafts = 7,
                                   int64_t max_rows = 64) const {
    const std::vector<Stream> streams(static_cast<size_t>(num_streams),
                                      {.num_drafts = num_drafts, .trend = 1});
    return cost_.best_depth(streams, odds_, max_rows);
  }

  void accept(int64_t num_drafts, int64_t num_accepted) {
    for (int i = 0; i < 500; ++i) odds_.verified(trend_, num_drafts, num_accepted);
  }

  DraftCost cost_;
  DraftOdds odds_;
  DraftOdds::AcceptanceTrend trend_;
};

TEST_F(DraftCostTest, NothingIsDraftedBeforePlainStepsWereSeen) {
  EXPECT_EQ(best_depth(1), 0);
  EXPECT_FALSE(cost_.may_draft(1));
  cost_.add({.num_streams = 1, .num_rows = 4, .num_tokens = 4, .seconds = 1e-3});
  EXPECT_EQ(best_depth(1), 0) << "it has nothing to be compared with";
  know(1, 1, 1e-3);
  EXPECT_TRUE(cost_.may_draft(1));
  EXPECT_EQ(best_depth(1), 1) << "one at first";
  EXPECT_EQ(best_depth(1, /*num_drafts=*/0), 0);
  EXPECT_EQ(best_depth(0), 0);
}

TEST_F(DraftCostTest, DepthGrowsWithWhatIsKnown) {
  know(1, 1, 1e-3);
  accept(7, 7);
  std::vector<int64_t> depths;
  for (int i = 0; i < 4; ++i) {
    depths.push_back(best_depth(1, 63));
    know(1, 1 + depths.back(), 1e-3);
  }
  EXPECT_EQ(depths, (std::vector<int64_t>{1, 3, 7, 15}));
}

TEST_F(DraftCostTest, RowsThatCostAsMuchAsStepsAreNotTaken) {
  know(1, 1, 1e-3);
  know(1, 2, 2.2e-3);
  EXPECT_EQ(best_depth(1), 0);
}

TEST_F(DraftCostTest, DepthFollowsWhatHolds) {
  know(1, 1, 1e-3);
  for (const int64_t rows : {2, 4, 8}) know(1, rows, 1e-3 + 2e-4 * static_cast<double>(rows));
  accept(7, 7);
  EXPECT_EQ(best_depth(1), 7);
  for (int i = 0; i < 501; ++i) odds_.verified(trend_, 7, i % 2);
  EXPECT_EQ(best_depth(1), 1);
  accept(7, 0);
  EXPECT_EQ(best_depth(1), 0);
}

TEST_F(DraftCostTest, MeasurementsCorrectTheCostOfOtherRowCounts) {
  know(1, 1, 1e-3);
  const double expected = cost_.ratio(1, 8);
  know(1, 4, 4e-3);
  EXPECT_NEAR(cost_.ratio(1, 4), 4, 1e-9);
  EXPECT_GT(cost_.ratio(1, 8), 2 * expected);
  EXPECT_GT(cost_.ratio(1, 2), 1.5);
  EXPECT_LT(cost_.ratio(1, 2), 4);
  EXPECT_EQ(cost_.ratio(1, 1), 1);
  // Between two that were measured it lies between both.
  know(1, 8, 5e-3);
  EXPECT_GT(cost_.ratio(1, 6), 3.5);
  EXPECT_LT(cost_.ratio(1, 6), 5);
}

TEST_F(DraftCostTest, AndWhatRowsOfOtherStreamsCost) {
  know(1, 1, 1e-3);
  know(8, 8, 2e-3);
  know(8, 16, 6e-3);
  accept(7, 7);
  EXPECT_EQ(best_depth(8), 0);
  EXPECT_GT(cost_.ratio(1, 2), 2) << "as eight streams have it";
  EXPECT_EQ(best_depth(1), 0);
  know(1, 2, 1.1e-3);
  EXPECT_GT(best_depth(1), 0) << "what is its own counts first";
}

TEST_F(DraftCostTest, RowsOfDraftsHaveALimit) {
  know(8, 8, 1e-3);
  know(8, 16, 1e-3);
  accept(7, 7);
  EXPECT_EQ(best_depth(8, 7, /*max_rows=*/64), 3);
  EXPECT_EQ(best_depth(8, 7, /*max_rows=*/31), 2);
  EXPECT_EQ(best_depth(8, 7, /*max_rows=*/15), 0);
}

TEST_F(DraftCostTest, OneSlowStepDoesNotDecide) {
  know(1, 1, 1e-3);
  know(1, 2, 1.2e-3);
  const double before = cost_.ratio(1, 2);
  cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 2, .seconds = 1});
  EXPECT_LT(cost_.ratio(1, 2), 1.3 * before);
  cost_.add({.num_streams = 1, .num_rows = 1, .num_tokens = 1, .seconds = 1});
  EXPECT_LT(cost_.plain_seconds(1), 1.3e-3);
}

TEST_F(DraftCostTest, ADearStepIsLookedAtTwice) {
  know(1, 1, 1e-3);
  const double expected = cost_.ratio(1, 2);
  cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 2, .seconds = 50e-3});
  EXPECT_EQ(cost_.ratio(1, 2), expected);
  cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 2, .seconds = 1.2e-3});
  EXPECT_NEAR(cost_.ratio(1, 2), 1.2, 1e-9);
}

TEST_F(DraftCostTest, StepsThatWarmUpDoNotCount) {
  for (int i = 0; i < 10; ++i) {
    cost_.add({.num_streams = 1, .num_rows = 1, .num_tokens = 1, .seconds = 1, .warms_up = true});
  }
  EXPECT_EQ(cost_.plain_seconds(1), 0);
  know(1, 1, 1e-3);
  const double expected = cost_.ratio(1, 2);
  for (int i = 0; i < 10; ++i) {
    cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 1, .seconds = 1, .warms_up = true});
  }
  EXPECT_EQ(cost_.ratio(1, 2), expected);
  EXPECT_GE(cost_.credit(1), 0);
}

TEST_F(DraftCostTest, RatiosAreForgottenAndPlainStepsMeasuredAgain) {
  know(1, 1, 1e-3);
  know(1, 2, 5e-3);
  EXPECT_EQ(best_depth(1), 0);
  for (int64_t step = 0; step <= DraftCost::kRemembered; ++step) know(1, 1, 1e-3);
  EXPECT_EQ(best_depth(1), 1);
  for (int64_t step = DraftCost::kPlainTries; step < DraftCost::kRemembered; ++step) {
    EXPECT_TRUE(cost_.may_draft(1));
    cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 2, .seconds = 1.2e-3});
  }
  for (int64_t i = 0; i < DraftCost::kPlainTries; ++i) {
    EXPECT_FALSE(cost_.may_draft(1)) << "a plain step is due";
    cost_.add({.num_streams = 1, .num_rows = 1, .num_tokens = 1, .seconds = 1e-3});
  }
  EXPECT_TRUE(cost_.may_draft(1));
}

// Losses are charged to the account even where costs and odds are believed to be good.
TEST_F(DraftCostTest, DebtStopsDraftsUntilPlainStepsHavePaidIt) {
  know(1, 1, 1e-3);
  double lost = 0;
  int64_t num_plain = 0;
  int64_t num_periods = 0;
  for (int step = 0; step < 10000; ++step) {
    if (cost_.may_draft(1)) {
      cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 1, .seconds = 1.4e-3});
      lost += 0.4e-3;
      num_periods += cost_.may_draft(1) ? 0 : 1;
    } else {
      cost_.add({.num_streams = 1, .num_rows = 1, .num_tokens = 1, .seconds = 1e-3});
      ++num_plain;
    }
  }
  EXPECT_GT(num_periods, 2);
  EXPECT_GT(num_plain, 9500);
  const double allowed = DraftCost::kTrialShare * static_cast<double>(num_plain);
  EXPECT_LT(lost, 1e-3 * (allowed + DraftCost::kMostDebt + 1));
}

TEST_F(DraftCostTest, CreditHasALimit) {
  know(1, 1, 1e-3);
  for (int i = 0; i < 1000; ++i) {
    cost_.add({.num_streams = 1, .num_rows = 2, .num_tokens = 2, .seconds = 1e-3});
  }
  EXPECT_NEAR(cost_.credit(1), DraftCost::kMostCredit, 1e-9);
}

TEST_F(DraftCostTest, SizesHaveAccountsOfTheirOwn) {
  know(1, 1, 1e-3);
  know(32, 32, 5e-3);
  for (int i = 0; i < 20; ++i) {
    cost_.add({.num_streams = 32, .num_rows = 64, .num_tokens = 32, .seconds = 10e-3});
  }
  EXPECT_FALSE(cost_.may_draft(32));
  EXPECT_TRUE(cost_.may_draft(1)) << "steps of one stream paid for nothing";
  EXPECT_GE(cost_.credit(1), 0);
}

TEST_F(DraftCostTest, WithCreditSomethingIsDared) {
  know(1, 1, 1e-3);
  know(1, 2, 1.75e-3);
  const double before = cost_.credit(1);
  ASSERT_LT(before, 1);
  EXPECT_EQ(best_depth(1, 1), 0) << "1.7 tokens in 1.75 steps";
  for (int i = 0; i < 500; ++i) know(1, 1, 1e-3);
  know(1, 2, 1.75e-3);
  EXPECT_GT(cost_.credit(1), before);
  EXPECT_EQ(best_depth(1, 1), 1);
}

}  // namespace
}  // namespace heddle::speculative
