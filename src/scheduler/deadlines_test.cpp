// SPDX-License-Identifier: Apache-2.0
#include "scheduler/deadlines.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

constexpr ServiceRates kRates{.prefill_tokens_per_second = 10000, .decode_tokens_per_second = 100};

TEST(DeadlinesTest, SchedulerSpec143) {
  const double x = slack_seconds(
      {.ttft_slo_seconds = 5, .elapsed_seconds = 1, .uncached_tokens = 20000}, kRates);
  const double y = slack_seconds(
      {.ttft_slo_seconds = 2, .elapsed_seconds = 0.5, .uncached_tokens = 1000}, kRates);
  EXPECT_NEAR(x, 2, 1e-12);
  EXPECT_NEAR(y, 1.4, 1e-12);

  FairShare fair({});
  const int32_t tenant = fair.tenant("t");
  std::vector<Waiting> entries = {{.arrival = 0, .tenant = tenant},
                                  {.arrival = 1, .tenant = tenant, .slack_seconds = x},
                                  {.arrival = 2, .tenant = tenant, .slack_seconds = y}};
  QueueOrder({.policy = QueuePolicy::kFair}).order(entries, {.fair = &fair});
  EXPECT_EQ(entries[0].arrival, 2);
  EXPECT_EQ(entries[1].arrival, 1);
  EXPECT_EQ(entries[2].arrival, 0) << "no deadline: infinite slack";
}

TEST(DeadlinesTest, TheDeadlineIncludesTheOutput) {
  EXPECT_NEAR(slack_seconds({.deadline_seconds = 10,
                             .elapsed_seconds = 1,
                             .uncached_tokens = 20000,
                             .output_tokens_left = 300},
                            kRates),
              4, 1e-12);
}

TEST(DeadlinesTest, TheTighterOneCountsAndTheTargetOnlyUntilTheFirstToken) {
  DeadlineView request{.ttft_slo_seconds = 3, .deadline_seconds = 10, .elapsed_seconds = 1};
  EXPECT_NEAR(slack_seconds(request, kRates), 2, 1e-12);
  request.has_first_token = true;
  EXPECT_NEAR(slack_seconds(request, kRates), 9, 1e-12);
  EXPECT_TRUE(std::isinf(slack_seconds({.elapsed_seconds = 1}, kRates)));
}

TEST(DeadlinesTest, UnknownRatesCostNothing) {
  EXPECT_NEAR(slack_seconds({.deadline_seconds = 10,
                             .elapsed_seconds = 1,
                             .uncached_tokens = 20000,
                             .output_tokens_left = 300},
                            {}),
              9, 1e-12);
}

TEST(DeadlinesTest, AMissedTargetLeavesNoTimeToSpare) {
  const DeadlineView request{.ttft_slo_seconds = 1, .elapsed_seconds = 5, .uncached_tokens = 10000};
  EXPECT_LT(slack_seconds(request, kRates), 0);
}

}  // namespace
}  // namespace heddle::scheduler
