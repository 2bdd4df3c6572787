// SPDX-License-Identifier: Apache-2.0
#include "engine/control_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/stepper_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ControlCallsTest : public StepperFixture {
 protected:
  ControlCalls calls_{*stepper_, inbox_, clock_};

  std::function<void(Status)> answer(std::string name) {
    return [this, name = std::move(name)](const Status& status) {
      events_.push_back(status.ok() ? name : name + " refused");
    };
  }

  void take() {
    inbox_.take(mail_);
    calls_.add(mail_);
    EXPECT_TRUE(mail_.pauses.empty() && mail_.clears.empty() && mail_.inspections.empty());
  }
};

TEST_F(ControlCallsTest, APauseIsMadeAtOnceAndAClearWaitsForTheCache) {
  submit("a");
  scheduler_->plans = {plan_for({1})};
  stepper_->step();
  inbox_.clear_cache({.deadline = 10, .timeout_seconds = 10, .on_done = answer("cleared")});
  take();
  calls_.run();
  EXPECT_THAT(events_, IsEmpty());
  EXPECT_TRUE(calls_.waiting());
  inbox_.pause({.mode = PauseMode::kInPlace, .on_done = answer("paused")});
  take();
  calls_.run();
  EXPECT_THAT(events_, ElementsAre("a: 1", "paused", "cleared"));
  EXPECT_FALSE(calls_.waiting());
}

TEST_F(ControlCallsTest, AClearIsRefusedAtItsDeadline) {
  submit("a");
  inbox_.clear_cache({.deadline = 10, .timeout_seconds = 10, .on_done = answer("early")});
  inbox_.clear_cache({.deadline = 20, .timeout_seconds = 20, .on_done = answer("late")});
  take();
  clock_.advance_seconds(10);
  calls_.run();
  EXPECT_THAT(events_, ElementsAre("early refused"));
  clock_.advance_seconds(10);
  calls_.run();
  EXPECT_THAT(events_, ElementsAre("early refused", "late refused"));
}

TEST_F(ControlCallsTest, AFailedEngineAnswersWithTheReason) {
  stepper_->set_failed(device_lost("unplugged"));
  for (const char* name : {"first", "second"}) {
    mail_.pauses.push_back({.mode = PauseMode::kInPlace, .on_done = answer(name)});
    calls_.add(mail_);
  }
  mail_.inspections.push_back(
      {.options = {}, .prompt = nullptr, .on_done = [this](const Result<Inspection>& inspection) {
         events_.push_back(inspection.status().message());
       }});
  calls_.add(mail_);
  calls_.run();
  ASSERT_EQ(events_.size(), 3u);
  EXPECT_EQ(events_[0], "first refused");
  EXPECT_EQ(events_[1], "second refused");
  EXPECT_THAT(events_[2], HasSubstr("unplugged"));
}

TEST_F(ControlCallsTest, EachCallThatIsLeftIsRefusedOnce) {
  submit("a");
  inbox_.clear_cache({.deadline = 10, .timeout_seconds = 10, .on_done = answer("clear")});
  inbox_.pause({.mode = PauseMode::kInPlace, .on_done = answer("pause")});
  take();
  calls_.refuse(unavailable("the engine has ended"));
  calls_.refuse(unavailable("the engine has ended"));
  EXPECT_THAT(events_, ElementsAre("clear refused", "pause refused"));
}

}  // namespace
}  // namespace heddle::engine
