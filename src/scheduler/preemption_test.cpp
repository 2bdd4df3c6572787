// SPDX-License-Identifier: Apache-2.0
#include "scheduler/preemption.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_parts_fixture.h"

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

TEST(PreemptionTest, TakesTheLeastUrgentUntilThereIsRoom) {
  const PreemptionRules rules = PreemptionRules::reference(10);
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = 456}, kRunning, rules), ElementsAre(2, 3));
  EXPECT_THAT(victims_of({.urgency = 10, .tokens = 456}, kRunning, rules), IsEmpty());
  EXPECT_THAT(victims_of({.urgency = 7, .tokens = 456}, kRunning, rules), IsEmpty());
  // The whole order: C, D, A, B; their futures are worth 200, 975, 400 and 200.
  EXPECT_THAT(victims_of({.urgency = 100, .tokens = 1700}, kRunning, rules),
              ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(victims_of({.urgency = 100, .tokens = 1776}, kRunning, rules), IsEmpty());
}

TEST(PreemptionTest, AbsentPriorityIsPreemptedByEveryExplicitOne) {
  std::vector<PreemptionCandidate> running = {kRunning[0]};
  running[0].urgency = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(
      victims_of({.urgency = -1000000, .tokens = 1}, running, PreemptionRules::reference(10)),
      ElementsAre(0));
  EXPECT_THAT(victims_of({.urgency = -1000000, .tokens = 1}, running, {}), ElementsAre(0));
}

TEST(PreemptionTest, HeldTokensCount) {
  std::vector<PreemptionCandidate> running = kRunning;
  running[2].held_tokens = 256;
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = 456}, running, {}), ElementsAre(2));
  EXPECT_THAT(victims_of({.urgency = 10, .tokens = 456}, running, {}), ElementsAre(2))
      << "the reference preempts nothing here";
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = 456}, running, PreemptionRules::reference(10)),
              ElementsAre(2, 3));
}

TEST(PreemptionTest, BatchSlotsAndStateSlotsAreGivenBack) {
  std::vector<PreemptionCandidate> running = kRunning;
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = -50, .batch_slots = 1}, running, {}),
              ElementsAre(2));
  EXPECT_THAT(victims_of({.urgency = 12, .tokens = -50, .batch_slots = 2}, running, {}),
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

TEST(PreemptionTest, NoRequestIsPreemptedForEver) {
  std::vector<PreemptionCandidate> running = kRunning;
  running[2].num_preemptions = 2;
  EXPECT_THAT(victims_of({.urgency = 12, .batch_slots = 1}, running, {}), ElementsAre(2));
  running[2].num_preemptions = 3;
  EXPECT_THAT(victims_of({.urgency = 12, .batch_slots = 1}, running, {}), ElementsAre(3));
  EXPECT_THAT(
      victims_of({.urgency = 12, .batch_slots = 1}, running, PreemptionRules::reference(10)),
      ElementsAre(2));
}

TEST(PreemptionTest, VictimsHaveRunForAWhile) {
  std::vector<PreemptionCandidate> running = kRunning;
  running[2].run_seconds = 0.2;
  EXPECT_THAT(victims_of({.urgency = 12, .batch_slots = 1}, running, {}), ElementsAre(2));
  running[2].run_seconds = 0.199;
  EXPECT_THAT(victims_of({.urgency = 12, .batch_slots = 1}, running, {}), ElementsAre(3));
}

TEST(PreemptionTest, FourVictimsAPass) {
  const std::vector<PreemptionCandidate> running(
      5, {.max_new_tokens = 1, .output_tokens = 1, .held_tokens = 100, .run_seconds = 9});
  EXPECT_EQ(victims_of({.urgency = 11, .tokens = 400}, running, {}).size(), 4u);
  EXPECT_THAT(victims_of({.urgency = 11, .tokens = 401}, running, {}), IsEmpty());
}

TEST(PreemptionTest, TheThresholdMustBePassed) {
  const std::vector<PreemptionCandidate> running = {{.urgency = 1, .run_seconds = 9}};
  EXPECT_THAT(victims_of({.urgency = 11, .batch_slots = 1}, running, {}), IsEmpty());
  EXPECT_THAT(victims_of({.urgency = 12, .batch_slots = 1}, running, {}), ElementsAre(0));
  EXPECT_THAT(victims_of({.urgency = 2, .batch_slots = 1}, running, {.threshold = 0}),
              ElementsAre(0));
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

using ::testing::ElementsAre;

std::vector<int64_t> retracted(std::vector<RetractionCandidate> running,
                               RetractionRule rule = RetractionRule::kOurs) {
  std::vector<int64_t> order;
  while (const auto index = choose_retraction(running, rule)) {
    order.push_back(running[static_cast<size_t>(*index)].arrival);
    running.erase(running.begin() + *index);
  }
  return order;
}

TEST(RetractionOrderTest, TheFewestOutputsThenTheLongestPromptGoFirst) {
  const std::vector<RetractionCandidate> running = {
      {.output_tokens = 50, .prompt_tokens = 1000, .arrival = 1},
      {.output_tokens = 10, .prompt_tokens = 300, .arrival = 2},
      {.output_tokens = 10, .prompt_tokens = 800, .arrival = 3}};
  EXPECT_THAT(retracted(running, RetractionRule::kReference), ElementsAre(3, 2));
  EXPECT_THAT(retracted(running), ElementsAre(3, 2)) << "the same among equals";
}

TEST(RetractionOrderTest, TheLastOneStays) {
  EXPECT_EQ(choose_retraction({}), std::nullopt);
  EXPECT_EQ(choose_retraction(std::vector<RetractionCandidate>{{.arrival = 1}}), std::nullopt);
}

TEST(RetractionOrderTest, TheLeastUrgentGoFirst) {
  const std::vector<RetractionCandidate> running = {
      {.urgency = 5, .output_tokens = 0, .prompt_tokens = 9, .arrival = 1},
      {.urgency = 0, .output_tokens = 90, .prompt_tokens = 9, .arrival = 2},
      {.urgency = 1, .output_tokens = 50, .prompt_tokens = 9, .arrival = 3}};
  EXPECT_THAT(retracted(running), ElementsAre(2, 3));
  EXPECT_THAT(retracted(running, RetractionRule::kReference), ElementsAre(1, 3));
}

TEST(RetractionOrderTest, TheOftenRetractedGoLater) {
  const std::vector<RetractionCandidate> running = {
      {.num_retractions = 1, .output_tokens = 0, .arrival = 1},
      {.num_retractions = 0, .output_tokens = 90, .arrival = 2},
      {.num_retractions = 0, .output_tokens = 80, .arrival = 3}};
  EXPECT_THAT(retracted(running), ElementsAre(3, 2));
}

TEST(RetractionOrderTest, ThreeRetractionsAreEnough) {
  const std::vector<RetractionCandidate> running = {
      {.urgency = -9, .num_retractions = 3, .arrival = 1},
      {.urgency = 9, .num_retractions = 2, .output_tokens = 99, .arrival = 2},
      {.urgency = -8, .num_retractions = 4, .arrival = 3}};
  EXPECT_THAT(retracted(running), ElementsAre(2, 1)) << "others first, then by urgency again";
}

TEST(RetractionOrderTest, TheNewestGoesFirstAmongEquals) {
  EXPECT_THAT(retracted({{.arrival = 1}, {.arrival = 3}, {.arrival = 2}}), ElementsAre(3, 2));
}

TEST(RetractionOrderTest, IsTheSameWhateverOrderTheCandidatesComeIn) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](uint32_t bound) { return static_cast<int32_t>(random() % bound); };
    std::vector<RetractionCandidate> running;
    for (int64_t i = 0; i < 30; ++i) {
      running.push_back({.urgency = pick(2),
                         .num_retractions = pick(5),
                         .output_tokens = pick(3),
                         .prompt_tokens = pick(3),
                         .arrival = i});
    }
    for (const RetractionRule rule : {RetractionRule::kOurs, RetractionRule::kReference}) {
      const std::vector<int64_t> once = retracted(running, rule);
      std::shuffle(running.begin(), running.end(), random);
      ASSERT_EQ(once, retracted(running, rule)) << "seed = " << seed;
    }
  }
}

TEST(PreemptionTest, ARunningSetGivesItsLeastUrgentSequences) {
  PartsFixture parts;
  for (const int64_t urgency : {5, 0, 7}) {
    request::Sequence& sequence = parts.make(6, 4);
    RunningSequence* const running = parts.running.start(sequence, {}, 0, false);
    ASSERT_NE(running, nullptr);
    running->urgency = urgency;
  }
  Preemption preemption({.threshold = 0}, /*page_size=*/4, /*needs_state=*/true);
  const PreemptionNeed two_pages{.urgency = 9, .tokens = 8, .batch_slots = 1, .state_slots = 1};
  const std::vector<RunningSequence*>& running = parts.running.sequences();
  EXPECT_THAT(preemption.victims_for(two_pages, parts.running, 0, 1), ElementsAre(running[1]));
  PreemptionNeed four_pages = two_pages;
  four_pages.tokens = 16;
  EXPECT_THAT(preemption.victims_for(four_pages, parts.running, 0, 1),
              ElementsAre(running[1], running[0]));
  EXPECT_THAT(preemption.victims_for(four_pages, parts.running, 0, 0.1), IsEmpty())
      << "they have not run long enough";
  EXPECT_EQ(preemption.choose_retraction(parts.running), running[1]);

  running[2]->leaving = Leaving::kDone;
  EXPECT_THAT(preemption.victims_for(two_pages, parts.running, 0, 1), IsEmpty())
      << "room is on its way";
}

TEST(PreemptionTest, TheLastRunningSequenceIsNotRetracted) {
  PartsFixture parts;
  Preemption preemption({}, /*page_size=*/4, /*needs_state=*/true);
  EXPECT_EQ(preemption.choose_retraction(parts.running), nullptr);
  ASSERT_NE(parts.running.start(parts.make(6, 4), {}, 0, false), nullptr);
  EXPECT_EQ(preemption.choose_retraction(parts.running), nullptr);
}

}  // namespace
}  // namespace heddle::scheduler
