// SPDX-License-Identifier: Apache-2.0
#include "scheduler/step_time_model.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

// A device with a law.
struct Law {
  double fixed = 0;
  double per_token = 0;
  double per_attended = 0;

  double operator()(const StepWork& work) const {
    return fixed + per_token * static_cast<double>(work.new_tokens) +
           per_attended * work.attended_tokens;
  }
};

constexpr Law kLaw{.fixed = 0.004, .per_token = 0.0001, .per_attended = 2e-8};

StepWork streams(int64_t count, int64_t context) {
  StepWork work;
  for (int64_t i = 0; i < count; ++i) work.add(1, context + i);
  return work;
}

StepWork with_chunk(StepWork work, int64_t tokens, int64_t context) {
  work.add(tokens, context);
  return work;
}

TEST(StepTimeModelTest, ATokenAttendsItselfAndAllBeforeIt) {
  StepWork work;
  work.add(3, 10);
  EXPECT_EQ(work.new_tokens, 3);
  EXPECT_EQ(work.attended_tokens, 11 + 12 + 13);
}

TEST(StepTimeModelTest, FindsTheLawFromAFewSteps) {
  StepTimeModel model;
  for (const auto& [tokens, context] :
       {std::pair(512, 0), std::pair(512, 3000), std::pair(64, 0)}) {
    const StepWork work = with_chunk(streams(4, 100), tokens, context);
    model.add(work, true, kLaw(work));
  }
  EXPECT_FALSE(model.knows_prefill()) << "before the fit";
  model.fit();
  EXPECT_TRUE(model.knows_prefill());
  for (const int64_t tokens : {1, 100, 2000}) {
    const StepWork work = with_chunk(streams(8, 500), tokens, 10000);
    EXPECT_NEAR(model.seconds(work), kLaw(work), 1e-5 * kLaw(work));
  }
}

TEST(StepTimeModelTest, FindsItUnderNoise) {
  std::mt19937 random(11);
  std::normal_distribution<double> noise(1, 0.1);
  StepTimeModel model;
  for (int i = 0; i < 500; ++i) {
    StepWork work = streams(1 + static_cast<int64_t>(random() % 8), 1000);
    const bool prefills = random() % 2 == 0;
    if (prefills) work.add(1 + static_cast<int64_t>(random() % 512), random() % 20000);
    model.add(work, prefills, kLaw(work) * std::max(noise(random), 0.5));
  }
  model.fit();
  const StepWork work = with_chunk(streams(4, 1000), 300, 8000);
  EXPECT_NEAR(model.seconds(work), kLaw(work), 0.05 * kLaw(work));
}

TEST(StepTimeModelTest, DoesNotForgetPromptsWhileOnlyStreamsRun) {
  StepTimeModel model;
  for (const int64_t context : {0, 1000, 2000}) {
    const StepWork work = with_chunk({}, 256, context);
    model.add(work, true, kLaw(work));
  }
  for (int64_t i = 0; i < 10'000; ++i) {
    const StepWork work = streams(4, 100 + i);
    model.add(work, false, kLaw(work));
  }
  model.fit();
  const StepWork work = with_chunk(streams(4, 500), 512, 4000);
  EXPECT_NEAR(model.seconds(work), kLaw(work), 1e-5 * kLaw(work));
}

TEST(StepTimeModelTest, FollowsADeviceThatBecameSlower) {
  StepTimeModel model;
  std::mt19937 random(2);
  for (const double slower : {1.0, 3.0}) {
    for (size_t i = 0; i < 2 * StepTimeModel::kRemembered; ++i) {
      const StepWork work = with_chunk(streams(2, 10), 1 + random() % 512, random() % 4096);
      model.add(work, true, slower * kLaw(work));
    }
    model.fit();
    const StepWork work = with_chunk(streams(2, 10), 100, 100);
    EXPECT_NEAR(model.seconds(work), slower * kLaw(work), 1e-5 * kLaw(work));
  }
}

// Steps that are all alike determine one number only; what they do say is kept.
TEST(StepTimeModelTest, StaysSensibleWhereStepsAreTooMuchAlike) {
  StepTimeModel model;
  model.fit();
  EXPECT_EQ(model.seconds(streams(1, 1)), 0);
  const StepWork work = with_chunk({}, 512, 0);
  for (int i = 0; i < 3; ++i) model.add(work, true, 0.05);
  model.add(work, true, 0);  // a clock that stood still
  model.fit();
  EXPECT_NEAR(model.seconds(work), 0.05, 1e-9);
  EXPECT_NEAR(model.added_seconds(512, 0), 0.05, 1e-9) << "the tokens cost, not the step";

  // Longer prompts that took less time: no coefficient is negative for it.
  const StepWork more = with_chunk({}, 1024, 0);
  for (int i = 0; i < 3; ++i) model.add(more, true, 0.04);
  model.fit();
  EXPECT_GE(model.added_seconds(100, 0), 0);
  EXPECT_GE(model.seconds({.new_tokens = 1}), 0);
}

TEST(StepTimeModelTest, CountsHowManyTokensFitIntoATime) {
  StepTimeModel model;
  for (const int64_t context : {0, 1000, 5000}) {
    for (const int64_t tokens : {100, 400}) {
      const StepWork work = with_chunk({}, tokens, context);
      model.add(work, true, kLaw(work));
    }
  }
  model.fit();
  for (const int64_t context : {0, 3000, 100'000}) {
    const int64_t fits = model.tokens_within(0.02, context, 8192);
    EXPECT_LE(model.added_seconds(fits, context), 0.02);
    EXPECT_GT(model.added_seconds(fits + 1, context), 0.02);
    EXPECT_EQ(model.tokens_within(0.02, context, fits - 1), fits - 1);
  }
  EXPECT_EQ(model.tokens_within(0, 0, 8192), 0);
  EXPECT_EQ(model.tokens_within(-1, 0, 8192), 0);
  EXPECT_EQ(model.tokens_within(1, 0, 0), 0);
}

}  // namespace
}  // namespace heddle::scheduler
