// SPDX-License-Identifier: Apache-2.0
// Which steps begin on a GPU while the one before runs. The texts that come of it are compared in
// tests/integration/steps_in_flight_test.cpp.
#include "runner/step/step_executor.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "support/hand_plan.h"
#include "support/test_data.h"

namespace heddle::runner {
namespace {

using heddle::testing::HandPlan;
using heddle::testing::HandSequence;

class StepExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto opened = device::open_cuda_device(0); !opened.ok()) {
      GTEST_SKIP() << opened.status().message();
    }
    auto device = ComputeDevice::open_cuda(0, /*exact=*/true);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    auto pass =
        ForwardPass::create({.model_dir = heddle::testing::repository_path("tests/golden/qwen2"),
                             .exact = true,
                             .max_step_tokens = 16,
                             .max_logit_rows = 16},
                            std::move(*device));
    ASSERT_TRUE(pass.ok()) << pass.status().to_string();
    pass_ = std::move(*pass);
    const PoolSizes sizes{
        .num_pages = 2, .page_size = 16, .max_step_tokens = 16, .max_step_sequences = 2};
    auto pools = Pools::create(
        pass_->device(), pass_->cache_needs(),
        {.sizes = sizes, .kv_dtype = pass_->kv_dtype(), .kv_scales = pass_->kv_scales()});
    ASSERT_TRUE(pools.ok()) << pools.status().to_string();
    executor_.emplace(*pass_, std::move(*pools), sizes, /*context_length=*/16);
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

TEST_F(StepExecutorTest, PromptsBeginBehindAStepThatRuns) {
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

TEST_F(StepExecutorTest, WaitsForSlotsThatTheStepThatRunsLooksUp) {
  const request::BatchPlan first = plan({prompt(1, 0, 2)}, 1);
  ASSERT_TRUE(executor_->begin(first).ok());
  EXPECT_FALSE(executor_->can_begin_behind(plan({prompt(2, 0, 4)}, 2)));
  EXPECT_TRUE(executor_->can_begin_behind(plan({prompt(2, 1, 4)}, 2)));
  finish();
}

TEST_F(StepExecutorTest, TakesTheSlotOfATextThatEndedWithTheTokenItFeeds) {
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
