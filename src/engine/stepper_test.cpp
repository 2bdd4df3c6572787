// SPDX-License-Identifier: Apache-2.0
#include "engine/stepper.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/stepper_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using StepperTest = StepperFixture;

TEST_F(StepperTest, LaunchesTheNextStepBeforeItWaitsForTheOneBefore) {
  submit("a");
  scheduler_->plans = {plan_for({1}), plan_for({1}), plan_for({1})};
  stepper_->step();
  EXPECT_THAT(runner_->calls, ElementsAre("submit 1"));
  EXPECT_THAT(events_, IsEmpty());
  stepper_->step();
  EXPECT_THAT(runner_->calls, ElementsAre("submit 1", "submit 1", "wait 1", "recycle"));
  EXPECT_THAT(events_, ElementsAre("a: 1"));
  stepper_->finish_steps();
  EXPECT_THAT(events_, ElementsAre("a: 1", "a: 1"));
  EXPECT_EQ(activity_.stats(inbox_.load(), 0).output_tokens, 2) << "it is shown";
}

TEST_F(StepperTest, APauseFinishesTheStepsAndLaunchesNoMore) {
  submit("a");
  scheduler_->plans = {plan_for({1}), plan_for({1})};
  stepper_->step();
  stepper_->set_paused(PauseMode::kInPlace);
  EXPECT_TRUE(stepper_->paused());
  stepper_->step();
  EXPECT_THAT(runner_->calls, ElementsAre("submit 1", "wait 1", "recycle"));
  stepper_->set_paused(std::nullopt);
  stepper_->step();
  EXPECT_EQ(runner_->calls.back(), "submit 1");
}

TEST_F(StepperTest, AStepThatFailsEndsEveryRequestAndSaysSoOnce) {
  submit("a");
  submit("b");
  scheduler_->plans = {plan_for({1}), plan_for({2})};
  stepper_->step();
  runner_->on_wait = [](request::StepOutput&) { return device_lost("unplugged"); };
  stepper_->step();
  EXPECT_TRUE(stepper_->failed());
  EXPECT_TRUE(stepper_->empty());
  EXPECT_THAT(events_, ElementsAre("a failed: unplugged", "b failed: unplugged"));
  EXPECT_THAT(inbox_.failure().message(), HasSubstr("unplugged"));
  stepper_->finish_all({.reason = FinishReason::kError, .error = inbox_.failure()});
  EXPECT_EQ(failures_, 1);
  stepper_->set_paused(PauseMode::kInPlace);
  EXPECT_FALSE(stepper_->paused()) << "an engine that ends is not paused";
}

TEST_F(StepperTest, EndsAllAfterAnExceptionInTheMiddleOfAStep) {
  submit("a");
  scheduler_->plans = {plan_for({1})};
  runner_->on_submit = []() -> Status { throw std::runtime_error("out of luck"); };
  EXPECT_THROW(stepper_->step(), std::runtime_error);
  stepper_->set_failed(internal_error("out of luck"));
  stepper_->finish_all({.reason = FinishReason::kError, .error = inbox_.failure()});
  EXPECT_THAT(events_, ElementsAre("a failed: out of luck"));
  EXPECT_TRUE(stepper_->empty());
}

TEST_F(StepperTest, LiveRequestsThatCannotRunAreAFailureNotAWait) {
  submit("a");
  stepper_->step();
  EXPECT_TRUE(stepper_->failed());
  EXPECT_THAT(events_, ElementsAre("a failed: 1 requests are live, but none can run"));
}

TEST_F(StepperTest, TheCacheIsClearedOnlyWhenNothingUsesIt) {
  submit("a");
  EXPECT_FALSE(stepper_->clear_cache());
  stepper_->set_paused(PauseMode::kInPlace);
  EXPECT_TRUE(stepper_->clear_cache()) << "nothing runs in this pause";
  stepper_->set_paused(std::nullopt);
  stepper_->cancel(std::vector<int64_t>{1, 7});
  EXPECT_THAT(events_, ElementsAre("a aborted"));
  EXPECT_TRUE(stepper_->clear_cache());
}

}  // namespace
}  // namespace heddle::engine
