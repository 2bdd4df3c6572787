// SPDX-License-Identifier: Apache-2.0
#include "runner/step/step_thread.h"

#include <latch>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using request::BatchPlan;
using request::StepOutput;
using ::testing::HasSubstr;

BatchPlan plan_of(int64_t id) {
  BatchPlan plan;
  plan.sequences = {{.sequence_id = id}};
  return plan;
}

// One token whose number is the plan's.
Status echo(const BatchPlan& plan, StepOutput& output) {
  output.tokens.emplace_back().sequence_id = plan.sequences.at(0).sequence_id;
  return {};
}

TEST(StepThreadTest, CarriesStepsOutInOrderWhileTheNextOneIsSubmitted) {
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<int64_t> order;  // the step's
  auto thread = StepThread::start([&](const BatchPlan& plan, StepOutput& output) {
    EXPECT_NE(std::this_thread::get_id(), caller);
    EXPECT_TRUE(output.tokens.empty());
    order.push_back(plan.sequences.at(0).sequence_id);
    return echo(plan, output);
  });
  ASSERT_TRUE(thread.ok());
  constexpr int64_t kSteps = 2000;
  std::array<BatchPlan, kMaxStepsInFlight> plans;  // written again once its output was taken
  for (int64_t step = 0; step < kSteps + kMaxStepsInFlight; ++step) {
    BatchPlan& plan = plans[static_cast<size_t>(step % kMaxStepsInFlight)];
    if (step >= kMaxStepsInFlight) {
      Result<StepOutput> output = (*thread)->wait();
      ASSERT_TRUE(output.ok());
      ASSERT_EQ(output->tokens.at(0).sequence_id, step - kMaxStepsInFlight);
      (*thread)->recycle(std::move(*output));
    }
    if (step >= kSteps) continue;
    plan = plan_of(step);
    (*thread)->submit(plan);
  }
  EXPECT_EQ(std::ssize(order), kSteps);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(StepThreadTest, GivesTheMemoryOfProcessedOutputsToLaterSteps) {
  auto thread = StepThread::start([](const BatchPlan&, StepOutput& output) {
    if (output.tokens.capacity() < 100) output.tokens.reserve(100);
    output.tokens.emplace_back();
    return Status();
  });
  ASSERT_TRUE(thread.ok());
  const BatchPlan plan = plan_of(1);
  std::vector<const void*> seen;
  for (int step = 0; step < 12; ++step) {
    (*thread)->submit(plan);
    Result<StepOutput> output = (*thread)->wait();
    ASSERT_TRUE(output.ok());
    seen.push_back(output->tokens.data());
    (*thread)->recycle(std::move(*output));
  }
  EXPECT_EQ(seen.front(), seen.back());
}

TEST(StepThreadTest, TurnsWhatAStepThrowsIntoItsErrorAndGoesOn) {
  auto thread = StepThread::start([](const BatchPlan& plan, StepOutput& output) -> Status {
    const int64_t id = plan.sequences.at(0).sequence_id;
    if (id == 1) throw std::bad_alloc();
    if (id == 2) throw std::runtime_error("a wheel came off");
    if (id == 3) return internal_error("a plain error");
    return echo(plan, output);
  });
  ASSERT_TRUE(thread.ok());
  const auto run = [&](int64_t id) {
    const BatchPlan plan = plan_of(id);
    (*thread)->submit(plan);
    return (*thread)->wait();
  };
  EXPECT_EQ(run(1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(run(2).status().message(), HasSubstr("a step threw: a wheel came off"));
  EXPECT_EQ(run(3).status().message(), "a plain error");
  const Result<StepOutput> output = run(4);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->tokens.size(), 1u);
}

TEST(StepThreadTest, EndsAfterTheStepItIsInAndDropsTheNext) {
  std::latch begun(1);
  std::latch stopping(1);
  std::vector<int64_t> carried_out;
  const BatchPlan first = plan_of(1);
  const BatchPlan second = plan_of(2);
  {
    auto thread = StepThread::start([&](const BatchPlan& plan, StepOutput& output) {
      carried_out.push_back(plan.sequences.at(0).sequence_id);
      begun.count_down();
      stopping.wait();
      return echo(plan, output);
    });
    ASSERT_TRUE(thread.ok());
    (*thread)->submit(first);
    (*thread)->submit(second);
    begun.wait();
    (*thread)->begin_stop();
    stopping.count_down();
  }
  EXPECT_THAT(carried_out, ::testing::ElementsAre(1)) << "the second had not begun";
}

TEST(StepThreadDeathTest, HoldsNoMoreStepsThanPromised) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto thread = StepThread::start(echo);
        const BatchPlan plan = plan_of(1);
        for (int i = 0; i <= kMaxStepsInFlight; ++i) (*thread)->submit(plan);
      },
      "num_waited_");
}

}  // namespace
}  // namespace heddle::runner
