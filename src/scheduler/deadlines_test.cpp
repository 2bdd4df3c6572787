// SPDX-License-Identifier: Apache-2.0
#include "scheduler/deadlines.h"

#include <cmath>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

constexpr ServiceRates kRates{.prefill_tokens_per_second = 10000, .decode_tokens_per_second = 100};

TEST(DeadlinesTest, TheLeastSlackGoesFirst) {
  const double x = slack_seconds(
      {.ttft_slo_seconds = 5, .elapsed_seconds = 1, .uncached_tokens = 20000}, kRates);
  const double y = slack_seconds(
      {.ttft_slo_seconds = 2, .elapsed_seconds = 0.5, .uncached_tokens = 1000}, kRates);
  EXPECT_NEAR(x, 2, 1e-12);
  EXPECT_NEAR(y, 1.4, 1e-12);

  FairShare fair({});
  const int32_t tenant = fair.tenant("t");
  std::vector<QueueEntry> entries = {{.arrival = 0, .tenant = tenant},
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

request::Sequence sequence_with(double deadline_seconds) {
  Request request;
  request.prompt = {1};
  request.deadline_seconds = deadline_seconds;
  return {0, std::move(request), 0, {}};
}

TEST(TimeLimitsTest, NothingIsCheckedUntilARequestCanRunOutOfTime) {
  TimeLimits limits({});
  EXPECT_FALSE(limits.any());
  limits.note(sequence_with(0).request);
  EXPECT_FALSE(limits.any());
  limits.note(sequence_with(1).request);
  EXPECT_TRUE(limits.any());
  EXPECT_TRUE(TimeLimits({.queue_timeout_seconds = 1}).any());
  EXPECT_TRUE(TimeLimits({.running_timeout_seconds = 1}).any());
}

TEST(TimeLimitsTest, WaitingAndRunningSequencesHaveTheirOwnLimits) {
  const TimeLimits limits({.queue_timeout_seconds = 5, .running_timeout_seconds = 20});
  request::Sequence sequence = sequence_with(100);
  EXPECT_TRUE(limits.check(sequence, true, 5).ok());
  EXPECT_EQ(limits.check(sequence, true, 5.1).code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(limits.check(sequence, true, 5.1).message(), ::testing::StartsWith("queue_timeout:"));
  EXPECT_TRUE(limits.check(sequence, false, 50).ok()) << "its first step has not begun";
  sequence.timings.first_step_seconds = 10;
  EXPECT_TRUE(limits.check(sequence, false, 30).ok());
  EXPECT_THAT(limits.check(sequence, false, 30.1).message(),
              ::testing::StartsWith("running_timeout:"));
  EXPECT_THAT(limits.check(sequence, false, 100.1).message(),
              ::testing::StartsWith("deadline_exceeded:"));
}

}  // namespace
}  // namespace heddle::scheduler
