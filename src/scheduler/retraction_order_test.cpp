// SPDX-License-Identifier: Apache-2.0
#include "scheduler/retraction_order.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

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

TEST(RetractionOrderTest, SchedulerSpec73) {
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

TEST(RetractionOrderTest, SchedulerSpec7DeviationTheLeastUrgentGoFirst) {
  const std::vector<RetractionCandidate> running = {
      {.urgency = 5, .output_tokens = 0, .prompt_tokens = 9, .arrival = 1},
      {.urgency = 0, .output_tokens = 90, .prompt_tokens = 9, .arrival = 2},
      {.urgency = 1, .output_tokens = 50, .prompt_tokens = 9, .arrival = 3}};
  EXPECT_THAT(retracted(running), ElementsAre(2, 3));
  EXPECT_THAT(retracted(running, RetractionRule::kReference), ElementsAre(1, 3));
}

TEST(RetractionOrderTest, SchedulerSpec7DeviationTheOftenRetractedGoLater) {
  const std::vector<RetractionCandidate> running = {
      {.num_retractions = 1, .output_tokens = 0, .arrival = 1},
      {.num_retractions = 0, .output_tokens = 90, .arrival = 2},
      {.num_retractions = 0, .output_tokens = 80, .arrival = 3}};
  EXPECT_THAT(retracted(running), ElementsAre(3, 2));
}

TEST(RetractionOrderTest, SchedulerSpec7DeviationThreeRetractionsAreEnough) {
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

}  // namespace
}  // namespace heddle::scheduler
