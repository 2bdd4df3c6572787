// SPDX-License-Identifier: Apache-2.0
// Steps by hand, on every device, and which of them begin on a GPU while the one before runs. The
// texts that come of it are compared in tests/integration/steps_in_flight_test.cpp.
#include "runner/step/step_executor.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "support/dense_model.h"
#include "support/hand_plan.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

using heddle::testing::HandPlan;
using heddle::testing::HandSequence;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using device::DeviceKind;

class StepExecutorTest : public ::testing::Test {
 protected:
  void open(DeviceKind kind) {
    if (kind == DeviceKind::kCuda) {
      const auto opened = device::open_cuda_device(0);
      if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    }
    auto device = kind == DeviceKind::kCuda ? ComputeDevice::open_cuda(0, /*exact=*/true)
                                            : ComputeDevice::open_cpu(1, /*exact=*/true);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    auto pass = ForwardPass::create({.model_dir = heddle::testing::dense_model(),
                                     .exact = true,
                                     .max_step_tokens = 16,
                                     .max_logit_rows = 16},
                                    std::move(*device));
    ASSERT_TRUE(pass.ok()) << pass.status().to_string();
    pass_ = std::move(*pass);
    start();
  }

  // An executor that has computed nothing.
  void start() {
    executor_.reset();
    const PoolSizes sizes{.num_pages = 2, .page_size = 16, .max_sequences = 2};
    const request::StepLimits limits{.max_tokens = 16, .max_draft_rows = 8};
    auto pools = Pools::create(pass_->device(), pass_->cache_needs(),
                               {.sizes = sizes,
                                .num_draft_slots = limits.max_draft_rows,
                                .kv_dtype = pass_->kv_dtype(),
                                .kv_scales = pass_->kv_scales()});
    ASSERT_TRUE(pools.ok()) << pools.status().to_string();
    executor_.emplace(*pass_, std::move(*pools), sizes, limits, /*context_length=*/16);
    ASSERT_TRUE(executor_->prepare().ok());
  }

  [[nodiscard]] HandSequence prompt(int64_t id, int32_t slot, size_t num_tokens) const {
    return {.sequence_id = id,
            .batch_slot = slot,
            .new_tokens = std::span(tokens_).first(num_tokens),
            .pages = std::span(pages_).subspan(static_cast<size_t>(slot), 1),
            .ending_tokens = ending_,
            .sample = true};
  }

  // On the token that the sequence drew behind its prompt of two.
  [[nodiscard]] HandSequence fed(int64_t id, int32_t slot) const {
    HandSequence sequence = prompt(id, slot, 0);
    sequence.context_tokens = 2;
    sequence.feeds_drawn_token = true;
    return sequence;
  }

  // A plan of these, of which all but `started` run already.
  static request::BatchPlan plan(std::vector<HandSequence> sequences, int64_t started) {
    HandPlan hand;
    hand.sequences = std::move(sequences);
    request::BatchPlan plan = hand.flat();
    std::erase_if(plan.starts, [&](const auto& start) { return start.sequence_id != started; });
    return plan;
  }

  // The tokens that a step of these draws.
  std::vector<TokenId> run(std::vector<HandSequence> sequences, int64_t started) {
    request::StepOutput output;
    const Status status =
        executor_->run(plans_.emplace_back(plan(std::move(sequences), started)), output);
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::vector<TokenId> tokens;
    for (const request::SampledToken& token : output.tokens) {
      tokens.push_back(token.skipped ? kSkipped : token.token);
    }
    return tokens;
  }

  static constexpr TokenId kSkipped = -2;

  TokenId finish() {
    request::StepOutput output;
    EXPECT_TRUE(executor_->finish(output).ok());
    return output.tokens.empty() ? sampling::kNoToken : output.tokens.front().token;
  }

  std::vector<TokenId> tokens_{3, 14, 15, 92}, ending_;
  std::vector<int32_t> pages_{1, 2};
  std::deque<request::BatchPlan> plans_;  // of steps that run
  std::unique_ptr<ForwardPass> pass_;
  std::optional<StepExecutor> executor_;
};

class StepsByHandTest : public StepExecutorTest, public ::testing::WithParamInterface<DeviceKind> {
 protected:
  void SetUp() override { open(GetParam()); }

  // The tokens behind the prompt of two, one step for each.
  std::vector<TokenId> plain(size_t count) {
    std::vector<TokenId> tokens = run({prompt(1, 0, 2)}, 1);
    while (tokens.size() < count) {
      HandSequence next = fed(1, 0);
      next.context_tokens = 1 + std::ssize(tokens);
      tokens.push_back(run({next}, 0).front());
    }
    return tokens;
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, StepsByHandTest, ::testing::Values(DeviceKind::kCpu));
INSTANTIATE_TEST_SUITE_P(Cuda, StepsByHandTest, ::testing::Values(DeviceKind::kCuda));

TEST_P(StepsByHandTest, DraftsThatHoldAreTheTokensOfPlainSteps) {
  const std::vector<TokenId> expected = plain(5);
  start();
  ASSERT_EQ(run({prompt(1, 0, 2)}, 1).front(), expected[0]);
  const TokenId wrong = expected[3] == 7 ? 8 : 7;
  const std::vector<TokenId> drafts{expected[1], expected[2], wrong};
  HandSequence verified = fed(1, 0);
  verified.drafts = drafts;
  EXPECT_THAT(run({verified}, 0), ElementsAre(expected[1], expected[2], expected[3]));
  HandSequence next = fed(1, 0);
  next.context_tokens = 5;
  EXPECT_THAT(run({next}, 0), ElementsAre(expected[4])) << "from where the drafts held";
}

// The rows of the second branch move to where a chain would have them.
TEST_P(StepsByHandTest, ABranchThatHoldsIsTheTextOfPlainSteps) {
  const std::vector<TokenId> expected = plain(5);
  start();
  ASSERT_EQ(run({prompt(1, 0, 2)}, 1).front(), expected[0]);
  const TokenId wrong = expected[1] == 7 ? 8 : 7;
  const std::vector<TokenId> drafts{wrong, wrong, expected[1], expected[2]};
  const std::vector<int32_t> parents{-1, 0, -1, 2};
  HandSequence verified = fed(1, 0);
  verified.drafts = drafts;
  verified.draft_parents = parents;
  EXPECT_THAT(run({verified}, 0), ElementsAre(expected[1], expected[2], expected[3]));
  HandSequence next = fed(1, 0);
  next.context_tokens = 5;
  EXPECT_THAT(run({next}, 0), ElementsAre(expected[4]));
}

TEST_P(StepsByHandTest, PlansUponAFailedStepAreSkipped) {
  const TokenId first = run({prompt(1, 0, 2)}, 1).front();
  HandSequence wrong = prompt(2, 1, 2);
  wrong.hidden_slot = 9;
  wrong.new_tokens = {};
  request::StepOutput output;
  const Status refused = executor_->run(plans_.emplace_back(plan({wrong}, 2)), output);
  EXPECT_THAT(refused.message(), HasSubstr("sequence 2: this runner keeps no hidden vectors"));
  EXPECT_THAT(run({fed(1, 0)}, 0), ElementsAre(kSkipped));
  EXPECT_THAT(run({prompt(1, 0, 2)}, 1), ElementsAre(first)) << "everything is sent again";
}

TEST_P(StepsByHandTest, ATextThatEndedIsSkipped) {
  const TokenId first = run({prompt(1, 0, 2)}, 1).front();
  start();
  ending_ = {first};
  EXPECT_THAT(run({prompt(1, 0, 2)}, 1), ElementsAre(first));
  EXPECT_THAT(run({fed(1, 0), prompt(2, 1, 2)}, 2), ElementsAre(kSkipped, first));
}

class StepsBehindStepsTest : public StepExecutorTest {
 protected:
  void SetUp() override { open(DeviceKind::kCuda); }
};

TEST_F(StepsBehindStepsTest, PromptsBeginBehindAStepThatRuns) {
  const request::BatchPlan first = plan({prompt(1, 0, 2)}, 1);
  HandSequence chunk = prompt(2, 1, 3);
  chunk.sample = false;
  const request::BatchPlan behind = plan({fed(1, 0), chunk}, 2);
  ASSERT_TRUE(executor_->begin(first).ok());
  EXPECT_TRUE(executor_->can_begin_behind(behind));
  ASSERT_TRUE(executor_->begin(behind).ok());
  finish();
  finish();
}

TEST_F(StepsBehindStepsTest, WaitsForSlotsThatTheStepThatRunsLooksUp) {
  const request::BatchPlan first = plan({prompt(1, 0, 2)}, 1);
  ASSERT_TRUE(executor_->begin(first).ok());
  EXPECT_FALSE(executor_->can_begin_behind(plan({prompt(2, 0, 4)}, 2)));
  EXPECT_TRUE(executor_->can_begin_behind(plan({prompt(2, 1, 4)}, 2)));
  finish();
}

TEST_F(StepsBehindStepsTest, TakesTheSlotOfATextThatEndedWithTheTokenItFeeds) {
  ASSERT_TRUE(executor_->begin(plans_.emplace_back(plan({prompt(1, 0, 2)}, 1))).ok());
  ending_ = {finish()};
  ASSERT_TRUE(executor_->begin(plans_.emplace_back(plan({prompt(2, 0, 2)}, 2))).ok());
  ASSERT_TRUE(executor_->begin(plans_.emplace_back(plan({fed(2, 0)}, 0))).ok());
  const request::BatchPlan next = plan({prompt(3, 0, 4)}, 3);
  EXPECT_EQ(finish(), ending_.front());
  EXPECT_TRUE(executor_->can_begin_behind(next));
  finish();
}

}  // namespace
}  // namespace heddle::runner
