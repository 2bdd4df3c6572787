// SPDX-License-Identifier: Apache-2.0
#include "engine/activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;

TEST(ActivityTest, CountsTheSecondsSinceTheLastStepWhileThereIsWork) {
  Activity activity(300);
  activity.show({.num_running = 1, .num_waiting = 2, .steps = 7});
  const Inbox::Load idle;
  const Inbox::Load busy = {.num_arrivals = 3, .num_unfinished = 4, .busy_since = 10};
  EXPECT_EQ(activity.stats(idle, 100).last_step_seconds_ago, 0);
  EXPECT_EQ(activity.stats(busy, 15).last_step_seconds_ago, 5) << "no step since work came";
  activity.show_steps({}, 12);
  EXPECT_EQ(activity.stats(busy, 15).last_step_seconds_ago, 3);
  EXPECT_EQ(activity.stats(busy, 15).num_waiting, 5);
  EXPECT_EQ(activity.stats(busy, 15).steps, 7);
}

TEST(ActivityTest, APauseIsNotTimeWithoutSteps) {
  Activity activity(300);
  const Inbox::Load busy = {.num_unfinished = 1, .busy_since = 10};
  activity.set_paused(true, 20);
  EXPECT_EQ(activity.stats(busy, 1000).last_step_seconds_ago, 0);
  EXPECT_TRUE(activity.stats(busy, 1000).paused);
  activity.show({.num_running = 1});
  EXPECT_TRUE(activity.stats(busy, 1000).paused) << "shown counters say nothing of pauses";
  activity.set_paused(false, 1000);
  EXPECT_EQ(activity.stats(busy, 1003).last_step_seconds_ago, 3);
  activity.set_paused(false, 1002);
  EXPECT_EQ(activity.stats(busy, 1003).last_step_seconds_ago, 3) << "there was no pause to end";
}

TEST(ActivityTest, ASlowStepIsGivenTheTimeOfItsTokens) {
  Activity activity(300);
  const Inbox::Load busy = {.num_unfinished = 1};
  EXPECT_EQ(activity.stats(busy, 0).stuck_after_seconds, 300) << "the first step may take anything";
  EXPECT_EQ(activity.stretch(), 10);
  activity.count_step({.prefill_tokens = 100, .seconds = 2});
  EXPECT_EQ(activity.stats(busy, 0).stuck_after_seconds, 30);
  const StepFacts chunk[] = {{.prefill_tokens = 2040, .decode_sequences = 8}};
  activity.show_steps(chunk, 0);
  EXPECT_NEAR(activity.stats(busy, 0).stuck_after_seconds, 8 * 2048 * 0.02, 1e-9);
  EXPECT_NEAR(activity.stretch(), 8 * 2048 * 0.02 / 30, 1e-9) << "the watchdog waits as well";
  activity.show_steps({}, 50);
  EXPECT_EQ(activity.stats(busy, 0).stuck_after_seconds, 30);
}

TEST(ActivityTest, DescribesTheStepsInFlight) {
  Activity activity(300);
  const StepFacts steps[] = {{.decode_sequences = 4, .decode_context = 50, .launched_seconds = 3},
                             {.new_sequences = 1, .prefill_tokens = 32, .launched_seconds = 5}};
  activity.show_steps(steps, 0);
  const std::string text = activity.describe(6);
  EXPECT_THAT(text, HasSubstr("2 are in flight"));
  EXPECT_THAT(text, HasSubstr("4 sequences that decode, with 50 tokens before them"));
  EXPECT_THAT(text, HasSubstr("32 prompt tokens and 1 new sequences; launched 1.0 s ago"));
}

}  // namespace
}  // namespace heddle::engine
