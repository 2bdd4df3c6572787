// SPDX-License-Identifier: Apache-2.0
#include "engine/step_pipeline.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduler_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StepPipelineTest : public ::testing::Test {
 protected:
  StepPipelineTest() { make(/*overlap=*/true); }

  void make(bool overlap) {
    auto runner = std::make_unique<RecordingRunner>();
    runner_ = runner.get();
    pipeline_ =
        std::make_unique<StepPipeline>(std::move(runner), scheduler_, activity_, clock_,
                                       PipelineOptions{.overlap = overlap, .vocab_size = 100});
  }

  // Plans and launches a step of one sequence.
  void launch(int64_t sequence_id) {
    scheduler_.plans.push_back(plan_for({sequence_id}));
    ASSERT_NE(pipeline_->plan(), nullptr);
    const Status status = pipeline_->launch({});
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  RecordingScheduler scheduler_;
  Activity activity_{300};
  ManualClock clock_;
  RecordingRunner* runner_ = nullptr;  // the pipeline's
  std::unique_ptr<StepPipeline> pipeline_;
};

TEST_F(StepPipelineTest, TakesASecondStepBeforeTheFirstIsFinished) {
  launch(1);
  EXPECT_FALSE(pipeline_->full());
  launch(2);
  EXPECT_TRUE(pipeline_->full());
  for (const int64_t id : {1, 2}) {
    Result<FinishedStep> step = pipeline_->wait();
    ASSERT_TRUE(step.ok());
    EXPECT_EQ(step->plan->sequences.at(0).sequence_id, id);
    EXPECT_EQ(step->output.tokens.at(0).token, id);
    pipeline_->recycle(std::move(*step));
  }
  EXPECT_TRUE(pipeline_->empty());
  EXPECT_EQ(pipeline_->num_finished(), 2);
  EXPECT_THAT(scheduler_.calls, ElementsAre("complete 1", "complete 2"));
  EXPECT_THAT(runner_->calls,
              ElementsAre("submit 1", "submit 2", "wait 1", "recycle", "wait 2", "recycle"));
}

TEST_F(StepPipelineTest, TheSchedulerCatchesUpWhileAStepIsUnderWay) {
  std::vector<size_t> num_submitted;
  scheduler_.on_catch_up = [&] { num_submitted.push_back(runner_->calls.size()); };
  launch(1);
  EXPECT_THAT(num_submitted, ElementsAre(1)) << "behind the step that is alone";
  launch(2);
  EXPECT_THAT(num_submitted, ElementsAre(1, 1)) << "before a step that may wait for the first";
}

TEST_F(StepPipelineTest, IsFullWithOneStepWithoutOverlap) {
  make(/*overlap=*/false);
  launch(1);
  EXPECT_TRUE(pipeline_->full());
}

TEST_F(StepPipelineTest, HasNoPlanWhenNothingCanRun) {
  EXPECT_EQ(pipeline_->plan(), nullptr);
  EXPECT_EQ(pipeline_->plan(), nullptr) << "and may be asked again";
  EXPECT_TRUE(pipeline_->empty());
}

TEST_F(StepPipelineTest, AFailedLaunchAbandonsEveryStepOldestFirst) {
  launch(1);
  scheduler_.plans.push_back(plan_for({2}));
  ASSERT_NE(pipeline_->plan(), nullptr);
  runner_->on_submit = [] { return device_lost("unplugged"); };
  EXPECT_EQ(pipeline_->launch({}).code(), StatusCode::kDeviceLost);
  EXPECT_TRUE(pipeline_->empty());
  EXPECT_THAT(scheduler_.calls, ElementsAre("abandon 1", "abandon 2"));
  EXPECT_THAT(runner_->calls, ElementsAre("submit 1", "wait 1"))
      << "the runner never had the other";
  runner_->on_submit = nullptr;
  launch(3);
  ASSERT_TRUE(pipeline_->wait().ok());
}

TEST_F(StepPipelineTest, AfterAnExceptionEveryPlanCanBeAbandoned) {
  launch(1);
  scheduler_.plans.push_back(plan_for({2}));
  ASSERT_NE(pipeline_->plan(), nullptr);
  runner_->on_submit = []() -> Status { throw std::runtime_error("no memory"); };
  EXPECT_THROW((void)pipeline_->launch({}), std::runtime_error);
  pipeline_->abandon_all();
  EXPECT_THAT(scheduler_.calls, ElementsAre("abandon 1", "abandon 2"));
  pipeline_->abandon_all();
  EXPECT_EQ(scheduler_.calls.size(), 2u) << "each once";

  runner_->on_submit = nullptr;
  launch(3);
  runner_->on_wait = [](request::StepOutput&) -> Status { throw std::runtime_error("no memory"); };
  EXPECT_THROW((void)pipeline_->wait(), std::runtime_error);
  EXPECT_EQ(scheduler_.calls.back(), "abandon 3");
  EXPECT_TRUE(pipeline_->empty());

  scheduler_.plans.push_back(plan_for({4}));
  ASSERT_NE(pipeline_->plan(), nullptr);
  pipeline_->abandon_all();
  EXPECT_EQ(scheduler_.calls.back(), "abandon 4") << "planned and never launched";
}

TEST_F(StepPipelineTest, AFailedStepIsAbandonedAndTheNextOneStays) {
  launch(1);
  launch(2);
  runner_->on_wait = [](request::StepOutput&) { return device_lost("unplugged"); };
  EXPECT_EQ(pipeline_->wait().status().code(), StatusCode::kDeviceLost);
  EXPECT_THAT(scheduler_.calls, ElementsAre("abandon 1"));
  EXPECT_FALSE(pipeline_->empty());
  pipeline_->abandon_all();
  EXPECT_THAT(scheduler_.calls, ElementsAre("abandon 1", "abandon 2"));
  EXPECT_EQ(pipeline_->num_finished(), 0);
}

TEST_F(StepPipelineTest, AnOutputThatDoesNotFitThePlanFailsTheStep) {
  struct Case {
    std::function<void(request::StepOutput&)> spoil;
    const char* message;
  };

  const Case cases[] = {
      {[](request::StepOutput& output) { output.tokens.clear(); },
       "drew 0 tokens for sequence 1, 1 to 1 fit"},
      {[](request::StepOutput& output) { output.tokens.resize(2); },
       "drew tokens that were not planned"},
      {[](request::StepOutput& output) { output.tokens.push_back(output.tokens[0]); },
       "drew 2 tokens for sequence 1, 1 to 1 fit"},
      {[](request::StepOutput& output) { output.tokens[0].sequence_id = 9; },
       "drew 0 tokens for sequence 1"},
      {[](request::StepOutput& output) { output.tokens[0].token = 100; },
       "token 100 of a vocabulary of 100"},
      {[](request::StepOutput& output) { output.tokens[0].token = -1; }, "token -1"},
      {[](request::StepOutput& output) { output.drafts.push_back({.sequence_id = 1}); },
       "made 1 drafts for sequence 1, 0 are wanted"},
      {[](request::StepOutput& output) { output.drafts.push_back({.sequence_id = 9}); },
       "made drafts that were not planned"},
      {[](request::StepOutput& output) { output.scored.push_back({.sequence_id = 1}); },
       "scored 1 tokens of sequence 1, 0 are wanted"},
      {[](request::StepOutput& output) { output.scored.push_back({.sequence_id = 9}); },
       "scored tokens that were not planned"},
  };
  for (const Case& bad : cases) {
    scheduler_.calls.clear();
    launch(1);
    runner_->on_wait = [&](request::StepOutput& output) {
      bad.spoil(output);
      return Status();
    };
    const Result<FinishedStep> step = pipeline_->wait();
    EXPECT_EQ(step.status().code(), StatusCode::kInternal);
    EXPECT_THAT(step.status().message(), HasSubstr(bad.message));
    EXPECT_THAT(scheduler_.calls, ElementsAre("abandon 1"));
  }
}

TEST_F(StepPipelineTest, ASpanHasATokenMoreThanTheDraftsItAccepts) {
  const auto run = [&](size_t num_tokens, size_t failing) {
    scheduler_.plans.push_back(plan_for({1, 2}));
    scheduler_.plans.back().sequences[0].drafts.count = 2;
    EXPECT_NE(pipeline_->plan(), nullptr);
    EXPECT_TRUE(pipeline_->launch({}).ok());
    runner_->on_wait = [=](request::StepOutput& output) {
      output.tokens.insert(output.tokens.begin(), num_tokens - 1, output.tokens[0]);
      if (failing < num_tokens) output.tokens[failing].error = internal_error("not a number");
      return Status();
    };
    return pipeline_->wait();
  };
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}}) {
    const Result<FinishedStep> step = run(count, count);
    ASSERT_TRUE(step.ok()) << step.status().to_string();
    EXPECT_EQ(step->facts.accepted_drafts, count - 1);
  }
  EXPECT_TRUE(run(3, 2).ok()) << "the last draw failed";
  EXPECT_THAT(run(3, 1).status().message(), HasSubstr("went on after a draw of sequence 1"));
  EXPECT_THAT(run(4, 4).status().message(), HasSubstr("drew 4 tokens for sequence 1, 1 to 3 fit"));
}

TEST_F(StepPipelineTest, AMadeDraftFollowsOneBeforeIt) {
  const auto run = [&](std::vector<int32_t> parents) {
    scheduler_.plans.push_back(plan_for({1}));
    scheduler_.plans.back().sequences[0].wanted_drafts = 3;
    EXPECT_NE(pipeline_->plan(), nullptr);
    EXPECT_TRUE(pipeline_->launch({}).ok());
    runner_->on_wait = [=](request::StepOutput& output) {
      for (const int32_t parent : parents) {
        output.drafts.push_back({.sequence_id = 1, .token = 7, .parent = parent});
      }
      return Status();
    };
    return std::string(pipeline_->wait().status().message());
  };
  EXPECT_EQ(run({-1, 0, -1}), "");
  EXPECT_THAT(run({-1, 1}), HasSubstr("made draft 1 of sequence 1 behind draft 1"));
  EXPECT_THAT(run({-2}), HasSubstr("made draft 0"));
}

TEST_F(StepPipelineTest, TheTokenOfAFailedOrSkippedDrawIsNotLookedAt) {
  launch(1);
  runner_->on_wait = [](request::StepOutput& output) {
    output.tokens[0].token = -7;
    output.tokens[0].error = internal_error("not a number");
    return Status();
  };
  EXPECT_TRUE(pipeline_->wait().ok());
  launch(2);
  runner_->on_wait = [](request::StepOutput& output) {
    output.tokens[0].token = -7;
    output.tokens[0].skipped = true;
    return Status();
  };
  EXPECT_TRUE(pipeline_->wait().ok());
}

TEST_F(StepPipelineTest, AStepTakesTheTimeSinceItsLaunchOrSinceTheStepBefore) {
  scheduler_.on_plan = [this] { clock_.advance_seconds(0.5); };
  runner_->on_wait = [this](request::StepOutput&) {
    clock_.advance_seconds(2);
    return Status();
  };
  launch(1);
  launch(2);
  EXPECT_THAT(activity_.describe(clock_.now_seconds()), HasSubstr("2 are in flight"));
  const Result<FinishedStep> first = pipeline_->wait();
  EXPECT_EQ(first->facts.plan_seconds, 0.5);
  EXPECT_EQ(first->facts.launched_seconds, 0.5);
  EXPECT_EQ(first->facts.seconds, 2.5) << "the second was planned meanwhile";
  EXPECT_EQ(first->facts.end_seconds, 3);
  EXPECT_THAT(activity_.describe(clock_.now_seconds()), HasSubstr("1 are in flight"));
  EXPECT_EQ(pipeline_->wait()->facts.seconds, 2) << "the runner worked on the first until then";
}

}  // namespace
}  // namespace heddle::engine
