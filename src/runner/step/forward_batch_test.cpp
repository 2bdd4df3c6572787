// SPDX-License-Identifier: Apache-2.0
#include "runner/step/forward_batch.h"

#include <bit>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rope/rope.h"
#include "support/hand_plan.h"

namespace heddle::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::HandPlan;
using testing::HandSequence;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kPageSize = 4;

class ForwardBatchTest : public ::testing::Test {
 protected:
  HandSequence sequence(std::span<const TokenId> tokens, int64_t context,
                        std::span<const int32_t> pages, int32_t slot, bool sample) {
    return {.sequence_id = slot,
            .batch_slot = slot - 1,
            .new_tokens = tokens,
            .context_tokens = context,
            .pages = pages,
            .state_slot = slot,
            .sample = sample};
  }

  Status build(ForwardBatch& batch, const HandPlan& hand, LogitRows rows,
               const TokenSource* tokens = nullptr) {
    plan_ = hand.flat();
    HEDDLE_RETURN_IF_ERROR(slots_.take(plan_));
    return batch.build(plan_, slots_, rows, tokens);
  }

  request::BatchPlan plan_;  // the batch's sequences refer to it
  request::BatchSlots slots_{4, 4};
  ForwardBatch batch_{{.max_tokens = 8,
                       .max_sequences = 3,
                       .max_pages_per_sequence = 3,
                       .page_size = kPageSize,
                       .max_scored_rows = 8,
                       .num_hidden_slots = 9}};
  const std::vector<TokenId> prompt_ = {5, 6, 7, 8, 9};
  const std::vector<TokenId> one_ = {42};
  const std::vector<int32_t> pages_a_ = {3, 1};
  const std::vector<int32_t> pages_b_ = {2, 5, 4};
  Pools pools_;
};

TEST_F(ForwardBatchTest, LaysOutPrefillAndDecodeEndToEnd) {
  HandPlan plan;
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, true), sequence(one_, 9, pages_b_, 2, true)};
  ASSERT_TRUE(build(batch_, plan, LogitRows::kSampled).ok());
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
  HandPlan plan;
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, false), sequence(one_, 2, pages_b_, 2, true)};
  ASSERT_TRUE(build(batch_, plan, LogitRows::kSampled).ok());
  EXPECT_THAT(batch_.context(pools_).logit_rows, ElementsAre(5));
  ASSERT_TRUE(build(batch_, plan, LogitRows::kAll).ok());
  EXPECT_THAT(batch_.context(pools_).logit_rows, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(ForwardBatchTest, WantsTheLogitsOfRowsThatScoreBeforeThoseThatDraw) {
  HandPlan plan;
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, true), sequence(one_, 2, pages_b_, 2, false)};
  plan.sequences[0].scored = {.begin = 1, .count = 3};
  plan.sequences[1].scored = {.begin = 0, .count = 1};
  plan.sequences[1].next_token = 77;
  ASSERT_TRUE(build(batch_, plan, LogitRows::kSampled).ok());
  EXPECT_THAT(batch_.context(pools_).logit_rows, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(batch_.sequences()[0].scored_row, 0);
  EXPECT_EQ(batch_.sequences()[0].logit_row, 3);
  EXPECT_EQ(batch_.sequences()[1].scored_row, 4);
  const request::BatchPlan flat = plan.flat();
  EXPECT_EQ(flat.scored_token(flat.sequences[0], 0), 7);
  EXPECT_EQ(flat.scored_token(flat.sequences[0], 2), 9);
  EXPECT_EQ(flat.scored_token(flat.sequences[1], 0), 77);
  ASSERT_TRUE(build(batch_, plan, LogitRows::kAll).ok());
  EXPECT_EQ(batch_.sequences()[0].scored_row, 1);
  EXPECT_EQ(batch_.sequences()[1].scored_row, 5);

  plan.sequences[0].scored = {.begin = 1, .count = 4};  // the last one draws
  EXPECT_THAT(
      build(batch_, plan, LogitRows::kSampled).message(),
      HasSubstr("scores the tokens behind its new ones 1 to 5; what follows is known of 4"));
}

TEST_F(ForwardBatchTest, CountsSnapshotsFromTheFirstNewToken) {
  const std::vector<request::PlannedSnapshot> wanted = {{.tokens = 4, .slot = 7},
                                                        {.tokens = 6, .slot = 8}};
  HandPlan plan;
  plan.sequences = {sequence(prompt_, 2, pages_a_, 1, true)};
  plan.sequences[0].snapshots = wanted;
  ASSERT_TRUE(build(batch_, plan, LogitRows::kSampled).ok());
  const auto snapshots = batch_.context(pools_).snapshots;
  ASSERT_EQ(snapshots.size(), 2u);
  EXPECT_EQ(snapshots[0].num_tokens, 2);
  EXPECT_EQ(snapshots[1].num_tokens, 4);
  EXPECT_EQ(snapshots[1].slot, 8);

  const std::vector<request::PlannedSnapshot> behind = {{.tokens = 2, .slot = 7}};
  plan.sequences[0].snapshots = behind;
  EXPECT_THAT(build(batch_, plan, LogitRows::kSampled).message(),
              HasSubstr("wants a snapshot at token 2, the step covers 2 to 7"));
}

TEST_F(ForwardBatchTest, FeedsDrawnTokensAndLeavesOutWhatEnded) {
  TokenSource drawn(3);
  drawn.drew(1, /*step=*/0, 17, /*ends=*/false);
  drawn.drew(2, /*step=*/0, 23, /*ends=*/true);
  const std::vector<TokenId> ending = {11, 23};
  HandPlan plan;
  plan.sequences = {sequence({}, 4, pages_a_, 1, true), sequence(one_, 6, pages_b_, 2, true),
                    sequence({}, 5, pages_a_, 3, true)};
  for (int32_t i = 0; i < 3; ++i) {
    HandSequence& planned = plan.sequences[static_cast<size_t>(i)];
    planned.feeds_drawn_token = true;
    planned.ending_tokens = ending;
  }
  ASSERT_TRUE(build(batch_, plan, LogitRows::kSampled, &drawn).ok());
  EXPECT_THAT(batch_.ids(), ElementsAre(42, 17));
  EXPECT_THAT(batch_.positions(), ElementsAre(6, 7));
  EXPECT_THAT(batch_.context(pools_).logit_rows, ElementsAre(1));
  EXPECT_EQ(batch_.sequences()[0].part, StepSequence::Part::kSkipped);
  EXPECT_EQ(batch_.sequences()[1].part, StepSequence::Part::kComputed);
  EXPECT_EQ(batch_.sequences()[1].fed_token, 17);
  EXPECT_EQ(batch_.sequences()[2].part, StepSequence::Part::kSkipped);

  plan.sequences.erase(plan.sequences.begin() + 1);
  ASSERT_TRUE(build(batch_, plan, LogitRows::kSampled, &drawn).ok());
  EXPECT_TRUE(batch_.empty());
  plan.sequences[0].batch_slot = 3;
  EXPECT_THAT(build(batch_, plan, LogitRows::kSampled, &drawn).message(),
              HasSubstr("feeds on the token drawn for batch slot 3; there are 3"));
}

TEST_F(ForwardBatchTest, SaysWhichKvRowsAreThereAndWhichVectorsToKeep) {
  const std::vector<request::PlannedSnapshot> at_end = {
      {.tokens = 7, .slot = 9, .keep_hidden = true}};
  HandPlan plan;
  plan.sequences = {sequence(one_, 3, pages_b_, 2, true), sequence(prompt_, 2, pages_a_, 1, false),
                    sequence({}, 7, pages_a_, 3, true)};
  plan.sequences[1].kv_tokens = 6;
  plan.sequences[1].snapshots = at_end;
  plan.sequences[2].hidden_slot = 5;
  ASSERT_TRUE(build(batch_, plan, LogitRows::kSampled).ok());
  EXPECT_THAT(batch_.context(pools_).kv_lens, ElementsAre(3, 6));
  EXPECT_THAT(batch_.context(pools_).logit_rows, ElementsAre(0, 5));
  ASSERT_EQ(batch_.kept_hidden().size(), 1u);
  EXPECT_EQ(batch_.kept_hidden()[0].from, 1);
  EXPECT_EQ(batch_.kept_hidden()[0].to, 9);
  EXPECT_THAT(batch_.hidden_slots(), ElementsAre(5));
  EXPECT_EQ(batch_.sequences()[2].part, StepSequence::Part::kHidden);
  EXPECT_EQ(batch_.sequences()[2].logit_row, 0);
}

TEST_F(ForwardBatchTest, NamesThePlanThatDoesNotFit) {
  HandPlan plan;
  plan.sequences = {sequence(prompt_, 4, pages_a_, 1, true)};
  EXPECT_THAT(build(batch_, plan, LogitRows::kSampled).message(),
              HasSubstr("sequence 1: needs pages 0 to 3 of table 0, has 0 to 2"));
  plan.sequences = {sequence({}, 0, pages_a_, 1, true)};
  EXPECT_THAT(build(batch_, plan, LogitRows::kSampled).message(), HasSubstr("has no new tokens"));
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, true),
                    sequence(prompt_, 0, pages_b_, 2, true)};
  EXPECT_EQ(build(batch_, plan, LogitRows::kSampled).message(),
            "a step of 2 sequences and 10 tokens; at most 3 and 8");
}

// Of a window of 5 tokens, the token at position 9 sees the tokens from 5 on, in page 1.
TEST_F(ForwardBatchTest, CopiesThePagesOfEachTableThatAreRead) {
  ForwardBatch batch({.max_tokens = 8,
                      .max_sequences = 3,
                      .max_pages_per_sequence = 3,
                      .page_size = kPageSize,
                      .windows = {{.num_pages = 9, .window = 3}, {.num_pages = 9, .window = 5}}});
  const std::vector<int32_t> window_a = {7, 8};
  const std::vector<int32_t> window_b = {5, 6};
  HandPlan plan;
  plan.sequences = {sequence(prompt_, 0, pages_a_, 1, true), sequence(one_, 9, pages_b_, 2, true)};
  const std::vector<int32_t> narrow_a = {1, 2}, narrow_b = {4, 3};
  plan.sequences[0].windows = {{.pages = narrow_a}, {.pages = window_a}};
  plan.sequences[1].windows = {{.pages = narrow_b, .first = 1}, {.pages = window_b, .first = 1}};
  ASSERT_TRUE(build(batch, plan, LogitRows::kSampled).ok());
  const ops::ForwardContext context = batch.context(pools_);
  EXPECT_THAT(context.page_tables[1].first(2), ElementsAre(1, 2));
  EXPECT_THAT(context.page_tables[2].first(2), ElementsAre(7, 8));
  EXPECT_EQ(context.pages(1, 2)[1], 5);
  EXPECT_EQ(context.pages(1, 2)[2], 6);
  EXPECT_EQ(context.pages(1, 1)[2], 3);
  EXPECT_TRUE(context.page_tables[3].empty());

  plan.sequences[1].windows[1].first = 2;
  EXPECT_THAT(build(batch, plan, LogitRows::kSampled).message(),
              HasSubstr("sequence 2: needs pages 1 to 3 of table 2, has 2 to 4"));
}

// Nodes lie one behind the other and have the positions of their depths; their states have slots of
// their own, and a snapshot among them waits for the draws.
TEST_F(ForwardBatchTest, LaysOutATreeOfDrafts) {
  ForwardBatch batch({.max_tokens = 8,
                      .max_sequences = 3,
                      .max_pages_per_sequence = 3,
                      .page_size = kPageSize,
                      .max_draft_rows = 6,
                      .first_draft_slot = 10});
  const std::vector<TokenId> drafts = {50, 51, 52, 53};
  const std::vector<int32_t> parents = {-1, -1, 0, 2};
  const std::vector<request::PlannedSnapshot> snapshots = {{.tokens = 6, .slot = 7},
                                                           {.tokens = 8, .slot = 8}};
  HandPlan plan;
  plan.sequences = {sequence(one_, 5, pages_b_, 2, true), sequence(one_, 9, pages_b_, 1, true)};
  plan.sequences[0].drafts = drafts;
  plan.sequences[0].draft_parents = parents;
  plan.sequences[0].snapshots = snapshots;
  ASSERT_TRUE(build(batch, plan, LogitRows::kSampled).ok());
  const ops::ForwardContext context = batch.context(pools_);
  EXPECT_THAT(batch.ids(), ElementsAre(42, 50, 51, 52, 53, 42));
  EXPECT_THAT(batch.positions(), ElementsAre(5, 6, 6, 7, 8, 9));
  EXPECT_THAT(context.tree_starts, ElementsAre(6, ops::kNoTree));
  EXPECT_THAT(context.tree_masks, ElementsAre(0, 0b0001, 0b0010, 0b0101, 0b1101, 0));
  EXPECT_THAT(context.state_slots, ElementsAre(10, 1));
  EXPECT_THAT(context.logit_rows, ElementsAre(0, 1, 2, 3, 4, 5));
  ASSERT_EQ(context.snapshots.size(), 1U);
  EXPECT_EQ(context.snapshots[0].num_tokens, 1);
  const StepSequence& batched = batch.sequences()[0];
  EXPECT_TRUE(batched.has_tree);
  EXPECT_EQ(batched.state_after(0), 10);
  EXPECT_EQ(batched.state_after(4), 14);

  plan.sequences[0].takes_long_rope = true;
  ASSERT_TRUE(build(batch, plan, LogitRows::kSampled).ok());
  constexpr int32_t kLong = ops::kLongRope;
  EXPECT_THAT(batch.positions(),
              ElementsAre(5 | kLong, 6 | kLong, 6 | kLong, 7 | kLong, 8 | kLong, 9));
  plan.sequences[0].takes_long_rope = false;

  const std::vector<int32_t> chain = {-1, 0, 1, 2};
  plan.sequences[0].draft_parents = chain;
  ASSERT_TRUE(build(batch, plan, LogitRows::kSampled).ok());
  EXPECT_THAT(batch.positions(), ElementsAre(5, 6, 7, 8, 9, 9));
  EXPECT_TRUE(batch.context(pools_).tree_starts.empty());
  EXPECT_EQ(batch.sequences()[0].state_after(0), 11);
  EXPECT_EQ(batch.sequences()[0].state_after(4), 10);
  EXPECT_EQ(batch.context(pools_).snapshots.size(), 6U);

  const std::vector<int32_t> wrong = {-1, 1, 0, 2};
  plan.sequences[0].draft_parents = wrong;
  EXPECT_THAT(build(batch, plan, LogitRows::kSampled).message(),
              HasSubstr("sequence 2: draft 1 follows draft 1"));
}

// Three sequences in two steps: the rows of their prompts, then a tree of drafts for each.
TEST_F(ForwardBatchTest, RowsOfPromptsAndOfVerification) {
  ForwardBatch batch({.max_tokens = 18,
                      .max_sequences = 3,
                      .max_pages_per_sequence = 4,
                      .page_size = kPageSize,
                      .max_draft_rows = 18});
  const std::vector<int32_t> pages = {3, 1, 6, 7};
  HandPlan prompts;
  prompts.sequences = {sequence(prompt_, 0, pages, 1, true),
                       sequence(prompt_, 4, pages_b_, 2, true),
                       sequence(one_, 2, pages_b_, 3, true)};
  ASSERT_TRUE(build(batch, prompts, LogitRows::kSampled).ok());
  EXPECT_EQ(batch.ids().size(), 11u) << "rows: all new tokens";
  EXPECT_THAT(batch.logit_rows(), ElementsAre(4, 9, 10)) << "logits: one row for each sequence";

  const std::vector<TokenId> drafts = {11, 12, 21, 23, 31};
  const std::vector<int32_t> parents = {-1, -1, 0, 1, 2};
  const std::vector<int32_t> depths = {0, 1, 1, 2, 2, 3};
  const std::vector<int32_t> lengths = {7, 5, 3};
  HandPlan verified;
  verified.sequences = {sequence(one_, 7, pages, 1, true), sequence(one_, 5, pages_b_, 2, true),
                        sequence(one_, 3, pages_b_, 3, true)};
  for (HandSequence& planned : verified.sequences) {
    planned.drafts = drafts;
    planned.draft_parents = parents;
  }
  ASSERT_TRUE(build(batch, verified, LogitRows::kSampled).ok());
  const ops::ForwardContext context = batch.context(pools_);
  std::vector<int32_t> all_rows(18);
  std::iota(all_rows.begin(), all_rows.end(), 0);
  EXPECT_EQ(batch.ids().size(), 18u);
  EXPECT_THAT(context.logit_rows, ElementsAreArray(all_rows));
  EXPECT_THAT(context.context_lens, ElementsAreArray(lengths));
  EXPECT_THAT(context.tree_starts, ElementsAre(8, 6, 4)) << "behind the token that is known";
  for (size_t row = 0; row < 18; ++row) {
    SCOPED_TRACE(row);
    EXPECT_EQ(batch.positions()[row], lengths[row / 6] + depths[row % 6]);
    // It reads the text and the nodes on its way, itself included.
    const int32_t num_read = context.tree_starts[row / 6] + std::popcount(context.tree_masks[row]);
    EXPECT_EQ(num_read, batch.positions()[row] + 1);
  }

  // A chain of three steps has a row more than it has steps.
  for (HandSequence& planned : verified.sequences) {
    planned.drafts = std::span(drafts).first(3);
    planned.draft_parents = {};
  }
  ASSERT_TRUE(build(batch, verified, LogitRows::kSampled).ok());
  EXPECT_THAT(batch.positions(), ElementsAre(7, 8, 9, 10, 5, 6, 7, 8, 3, 4, 5, 6));
  EXPECT_EQ(batch.logit_rows().size(), 12u);
  EXPECT_THAT(batch.context(pools_).tree_starts, IsEmpty());
}

// A page table has a row for each sequence, not for each branch of a tree of drafts.
TEST_F(ForwardBatchTest, BranchesShareThePageTableOfTheirSequence) {
  ForwardBatch batch({.max_tokens = 32,
                      .max_sequences = 2,
                      .max_pages_per_sequence = 3,
                      .page_size = kPageSize,
                      .max_draft_rows = 32});
  const std::vector<TokenId> drafts = {50, 51, 52, 53, 54, 55, 56};
  const std::vector<int32_t> parents(drafts.size(), -1);
  HandPlan plan;
  plan.sequences = {sequence(one_, 4, pages_b_, 1, true), sequence(one_, 3, pages_b_, 2, true)};
  for (HandSequence& planned : plan.sequences) {
    planned.drafts = drafts;
    planned.draft_parents = parents;
  }
  ASSERT_TRUE(build(batch, plan, LogitRows::kSampled).ok());
  const ops::ForwardContext context = batch.context(pools_);
  EXPECT_EQ(context.page_tables[0].size(), 2u * 3u);
  for (const int32_t b : {0, 1}) EXPECT_EQ(context.pages(b)[2], 4);
  plan.sequences[0].context_tokens = 5;  // the last branch lies behind the last page
  EXPECT_THAT(build(batch, plan, LogitRows::kSampled).message(),
              HasSubstr("needs 4 pages for 13 tokens; at most 3"));
}

}  // namespace
}  // namespace heddle::runner
