// SPDX-License-Identifier: Apache-2.0
#include "scheduler/preemption.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> victims_of(const PreemptionNeed& need,
                                const std::vector<PreemptionCandidate>& running,
                                const PreemptionRules& rules, double ratio = 0.5) {
  std::vector<int32_t> victims = {99};
  const bool found = choose_victims(need, running, ratio, rules, victims);
  EXPECT_EQ(found, !victims.empty());
  return victims;
}

// A, B, C, D of the worked example; they have run for long.
const std::vector<PreemptionCandidate> kRunning = {
    {.urgency = 0, .arrival = 1, .max_new_tokens = 1000, .output_tokens = 200, .run_seconds = 9},
    {.urgency = 5, .arrival = 2, .max_new_tokens = 500, .output_tokens = 100, .run_seconds = 9},
    {.urgency = -3, .arrival = 3, .max_new_tokens = 400, .output_tokens = 0, .run_seconds = 9},
    {.urgency = 0, .arrival = 4, .max_new_tokens = 2000, .output_tokens = 50, .run_seconds = 9}};

TEST(PreemptionTest, SchedulerSpec43) {
  const PreemptionRules rules = PreemptionRules::reference(10);
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = 456}, kRunning, rules), ElementsAre(2, 3));
  EXPECT_THAT(victims_of({.urgency = 10, .tokens = 456}, kRunning, rules), IsEmpty());
  EXPECT_THAT(victims_of({.urgency = 7, .tokens = 456}, kRunning, rules), IsEmpty());
  // The whole order: C, D, A, B; their futures are worth 200, 975, 400 and 200.
  EXPECT_THAT(victims_of({.urgency = 100, .tokens = 1700}, kRunning, rules),
              ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(victims_of({.urgency = 100, .tokens = 1776}, kRunning, rules), IsEmpty());
}

TEST(PreemptionTest, SchedulerSpec43AbsentPriorityGivesWayToEveryExplicitOne) {
  std::vector<PreemptionCandidate> running = {kRunning[0]};
  running[0].urgency = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(
      victims_of({.urgency = -1000000, .tokens = 1}, running, PreemptionRules::reference(10)),
      ElementsAre(0));
  EXPECT_THAT(victims_of({.urgency = -1000000, .tokens = 1}, running, {}), ElementsAre(0));
}

TEST(PreemptionTest, SchedulerSpec43DeviationHeldTokensCount) {
  std::vector<PreemptionCandidate> running = kRunning;
  running[2].held_tokens = 256;
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = 456}, running, {}), ElementsAre(2));
  EXPECT_THAT(victims_of({.urgency = 10, .tokens = 456}, running, {}), ElementsAre(2))
      << "the reference preempts nothing here";
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = 456}, running, PreemptionRules::reference(10)),
              ElementsAre(2, 3));
}

TEST(PreemptionTest, SchedulerSpec43DeviationRowsAndStateSlotsAreGivenBack) {
  std::vector<PreemptionCandidate> running = kRunning;
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = -50, .rows = 1}, running, {}), ElementsAre(2));
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = -50, .rows = 2}, running, {}),
              ElementsAre(2, 3));
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = -50, .state_slots = 2}, running, {}),
              ElementsAre(2, 3));
  running[2].state_slots = 2;
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = -50, .state_slots = 2}, running, {}),
              ElementsAre(2));
  running[2].state_slots = 0;
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = -50, .state_slots = 1}, running, {}),
              ElementsAre(2, 3));
}

TEST(PreemptionTest, SchedulerSpec43DeviationNobodyIsPreemptedForEver) {
  std::vector<PreemptionCandidate> running = kRunning;
  running[2].num_preemptions = 2;
  EXPECT_THAT(victims_of({.urgency = 12, .rows = 1}, running, {}), ElementsAre(2));
  running[2].num_preemptions = 3;
  EXPECT_THAT(victims_of({.urgency = 12, .rows = 1}, running, {}), ElementsAre(3));
  EXPECT_THAT(victims_of({.urgency = 12, .rows = 1}, running, PreemptionRules::reference(10)),
              ElementsAre(2));
}

TEST(PreemptionTest, SchedulerSpec43DeviationVictimsHaveRunForAWhile) {
  std::vector<PreemptionCandidate> running = kRunning;
  running[2].run_seconds = 0.2;
  EXPECT_THAT(victims_of({.urgency = 12, .rows = 1}, running, {}), ElementsAre(2));
  running[2].run_seconds = 0.199;
  EXPECT_THAT(victims_of({.urgency = 12, .rows = 1}, running, {}), ElementsAre(3));
}

TEST(PreemptionTest, SchedulerSpec43DeviationFourVictimsAPass) {
  const std::vector<PreemptionCandidate> running(
      5, {.max_new_tokens = 1, .output_tokens = 1, .held_tokens = 100, .run_seconds = 9});
  EXPECT_EQ(victims_of({.urgency = 11, .tokens = 400}, running, {}).size(), 4u);
  EXPECT_THAT(victims_of({.urgency = 11, .tokens = 401}, running, {}), IsEmpty());
}

TEST(PreemptionTest, TheThresholdMustBePassed) {
  const std::vector<PreemptionCandidate> running = {{.urgency = 1, .run_seconds = 9}};
  EXPECT_THAT(victims_of({.urgency = 11, .rows = 1}, running, {}), IsEmpty());
  EXPECT_THAT(victims_of({.urgency = 12, .rows = 1}, running, {}), ElementsAre(0));
  EXPECT_THAT(victims_of({.urgency = 2, .rows = 1}, running, {.threshold = 0}), ElementsAre(0));
}

TEST(PreemptionTest, TheFutureIsClipped) {
  const std::vector<PreemptionCandidate> running = {
      {.max_new_tokens = int64_t{1} << 30, .run_seconds = 9}};
  EXPECT_THAT(victims_of({.urgency = 11, .tokens = 2048}, running, {}), ElementsAre(0));
  EXPECT_THAT(victims_of({.urgency = 11, .tokens = 2049}, running, {}), IsEmpty());
}

TEST(PreemptionTest, ReadsTheOptions) {
  SchedulingOptions options;
  options.preemption_threshold = 3;
  options.max_preemptions = 7;
  options.preemption_min_run_seconds = 1.5;
  const PreemptionRules rules = PreemptionRules::from(options);
  EXPECT_EQ(rules.threshold, 3);
  EXPECT_EQ(rules.max_preemptions, 7);
  EXPECT_EQ(rules.min_run_seconds, 1.5);
  EXPECT_TRUE(rules.credit_held);
  EXPECT_EQ(rules.max_victims, 4);
}

}  // namespace
}  // namespace heddle::scheduler
