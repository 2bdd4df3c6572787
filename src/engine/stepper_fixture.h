// SPDX-License-Identifier: Apache-2.0
// StepperFixture: a Stepper over a scheduler and a runner that do as a test says.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/log.h"
#include "engine/scheduler_fixture.h"
#include "engine/stepper.h"

namespace heddle::engine {

class StepperFixture : public ::testing::Test {
 protected:
  StepperFixture() {
    set_log_level(LogLevel::kOff);  // the errors are on purpose
    auto runner = std::make_unique<RecordingRunner>();
    runner_ = runner.get();
    auto scheduler = std::make_unique<RecordingScheduler>();
    scheduler_ = scheduler.get();
    stepper_ = std::make_unique<Stepper>(
        std::move(runner), std::move(scheduler),
        Shown{.inbox = inbox_, .activity = activity_, .recorder = recorder_, .metrics = nullptr},
        clock_,
        StepperOptions{.pipeline = {.overlap = true, .vocab_size = 100},
                       .context_length = 64,
                       .pool_tokens = 64,
                       .on_failure = [this] { ++failures_; }});
  }

  // A request goes through the inbox into the stepper.
  void submit(const std::string& id) {
    Arrivals arrivals;
    arrivals.push_back(live_request(id, [this, id](const RequestEvent& event) {
      for (const TokenId token : event.tokens) events_.push_back(fmt::format("{}: {}", id, token));
      if (event.finish) events_.push_back(id + to_text(*event.finish));
    }));
    ASSERT_TRUE(inbox_.submit(std::move(arrivals)).ok());
    inbox_.take(mail_);
    stepper_->add(mail_.arrivals);
    EXPECT_TRUE(mail_.arrivals.empty());
  }

  static std::string to_text(const Finish& finish) {
    if (finish.reason == FinishReason::kAbort) return " aborted";
    return finish.reason == FinishReason::kError ? " failed: " + finish.error.message() : " ended";
  }

  ManualClock clock_;
  Inbox inbox_{clock_, {.max_queued = 8, .num_batch_slots = 4}, 1};
  Activity activity_{300};
  StepRecorder recorder_;
  Mail mail_;
  RecordingRunner* runner_ = nullptr;        // owned by the stepper
  RecordingScheduler* scheduler_ = nullptr;  // owned by the stepper
  std::unique_ptr<Stepper> stepper_;
  std::vector<std::string> events_;
  int failures_ = 0;
};

}  // namespace heddle::engine
