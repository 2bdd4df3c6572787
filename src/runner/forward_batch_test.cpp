// SPDX-License-Identifier: Apache-2.0
#include "runner/forward_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kPageSize = 4;

class ForwardBatchTest : public ::testing::Test {
 protected:
  request::PlannedSequence sequence(std::span<const TokenId> tokens, int64_t context,
                                    std::span<const int32_t> pages, int32_t slot, bool sample) {
    return {.sequence_id = slot,
            .new_tokens = tokens,
            .context_tokens = context,
            .pages = pages,
            .state_slot = slot,
            .sample = sample};
  }

  ForwardBatch batch_{/*max_tokens=*/8, /*max_sequences=*/3, /*max_pages_per_sequence=*/3,
                      kPageSize};
  const std::vector<TokenId> prompt_ = {5, 6, 7, 8, 9};
  const std::vector<TokenId> one_ = {42};
  const std::vector<int32_t> pages_a_ = {3, 1};
  const std::vector<int32_t> pages_b_ = {2, 5, 4};
  Pools pools_;
};

TEST_F(ForwardBatchTest, LaysOutPrefillAndDecodeEndToEnd) {
  request::BatchPlan plan;
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, true), sequence(one_, 9, pages_b_, 2, true)};
  ASSERT_TRUE(batch_.build(plan, LogitRows::kSampled).ok());
  const ops::ForwardContext context = batch_.context(pools_);
  EXPECT_THAT(batch_.ids(), ElementsAre(5, 6, 7, 8, 9, 42));
  EXPECT_THAT(batch_.positions(), ElementsAre(0, 1, 2, 3, 4, 9));
  EXPECT_THAT(context.query_start, ElementsAre(0, 5, 6));
  EXPECT_THAT(context.context_lens, ElementsAre(0, 9));
  EXPECT_THAT(context.state_slots, ElementsAre(1, 2));
  EXPECT_THAT(context.logit_rows, ElementsAre(4, 5));
  EXPECT_EQ(context.pages(0)[1], 1);
  EXPECT_EQ(context.pages(1)[2], 4);
}

TEST_F(ForwardBatchTest, WantsLogitsOnlyWhereATokenIsDrawn) {
  request::BatchPlan plan;
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, false), sequence(one_, 2, pages_b_, 2, true)};
  ASSERT_TRUE(batch_.build(plan, LogitRows::kSampled).ok());
  EXPECT_THAT(batch_.context(pools_).logit_rows, ElementsAre(5));
  ASSERT_TRUE(batch_.build(plan, LogitRows::kAll).ok());
  EXPECT_THAT(batch_.context(pools_).logit_rows, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(ForwardBatchTest, CountsCheckpointsFromTheFirstNewToken) {
  const std::vector<request::StateCheckpoint> wanted = {{.tokens = 4, .slot = 7},
                                                        {.tokens = 6, .slot = 8}};
  request::BatchPlan plan;
  plan.sequences = {sequence(prompt_, 2, pages_a_, 1, true)};
  plan.sequences[0].checkpoints = wanted;
  ASSERT_TRUE(batch_.build(plan, LogitRows::kSampled).ok());
  const auto checkpoints = batch_.context(pools_).checkpoints;
  ASSERT_EQ(checkpoints.size(), 2u);
  EXPECT_EQ(checkpoints[0].num_tokens, 2);
  EXPECT_EQ(checkpoints[1].num_tokens, 4);
  EXPECT_EQ(checkpoints[1].slot, 8);

  const std::vector<request::StateCheckpoint> behind = {{.tokens = 2, .slot = 7}};
  plan.sequences[0].checkpoints = behind;
  EXPECT_THAT(batch_.build(plan, LogitRows::kSampled).message(),
              HasSubstr("wants a checkpoint at token 2, the step covers 2 to 7"));
}

TEST_F(ForwardBatchTest, NamesThePlanThatDoesNotFit) {
  request::BatchPlan plan;
  plan.sequences = {sequence(prompt_, 4, pages_a_, 1, true)};
  EXPECT_THAT(batch_.build(plan, LogitRows::kSampled).message(),
              HasSubstr("sequence 1: needs 3 pages for 9 tokens, has 2"));
  plan.sequences = {sequence({}, 0, pages_a_, 1, true)};
  EXPECT_THAT(batch_.build(plan, LogitRows::kSampled).message(), HasSubstr("has no new tokens"));
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, true),
                    sequence(prompt_, 0, pages_b_, 2, true)};
  EXPECT_EQ(batch_.build(plan, LogitRows::kSampled).message(),
            "a step of 2 sequences and 10 tokens; at most 3 and 8");
}

}  // namespace
}  // namespace heddle::runner
