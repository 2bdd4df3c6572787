// SPDX-License-Identifier: Apache-2.0
#include "engine/step_recorder.h"

#include <deque>
#include <optional>

#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace heddle::engine {
namespace {

class StepRecorderTest : public ::testing::Test {
 protected:
  StepRecorderTest() : fixture_(EngineFixture::Options()) {}

  void ask(int64_t max_new_tokens) {
    Request request = EngineFixture::request("r", 20, max_new_tokens);
    request.stop.ignore_eos = true;
    ASSERT_TRUE(fixture_.submit(request, received_.emplace_back()).ok());
  }

  Status record(int64_t max_steps) {
    return fixture_.engine->record_steps(
        max_steps, [this](std::vector<StepRecord> steps) { steps_ = std::move(steps); });
  }

  void run() {
    while (fixture_.engine->step()) {
    }
  }

  EngineFixture fixture_;
  std::deque<Received> received_;  // per request
  std::optional<std::vector<StepRecord>> steps_;
};

TEST_F(StepRecorderTest, KeepsTheStepsBetweenStartAndStop) {
  ASSERT_TRUE(record(1000).ok());
  ask(5);
  run();
  EXPECT_FALSE(steps_.has_value());
  ASSERT_TRUE(fixture_.engine->stop_recording().ok());
  ASSERT_TRUE(steps_.has_value());
  ASSERT_GE(steps_->size(), 5u);
  EXPECT_EQ(steps_->front().prefill_tokens, 20);
  EXPECT_EQ(steps_->front().new_sequences, 1);
  EXPECT_EQ((*steps_)[1].decode_sequences, 1);
  for (size_t i = 1; i < steps_->size(); ++i) {
    EXPECT_EQ((*steps_)[i].number, (*steps_)[i - 1].number + 1);
  }
  steps_.reset();
  ask(5);
  run();
  EXPECT_FALSE(steps_.has_value());
}

TEST_F(StepRecorderTest, EndsWithItsLastStep) {
  ASSERT_TRUE(record(2).ok());
  ask(5);
  run();
  ASSERT_TRUE(steps_.has_value());
  EXPECT_EQ(steps_->size(), 2u);
  EXPECT_FALSE(fixture_.engine->stop_recording().ok()) << "it has ended";
  EXPECT_TRUE(record(2).ok());
}

TEST_F(StepRecorderTest, RefusesASecondRecordingAndWrongLengths) {
  EXPECT_EQ(record(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(record(kMaxRecordedSteps + 1).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(record(2).ok());
  EXPECT_EQ(record(2).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::engine
