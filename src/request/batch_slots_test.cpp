// SPDX-License-Identifier: Apache-2.0
#include "request/batch_slots.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::request {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BatchPlanTest, MovesAreKeptInTheOrderInWhichTheyHappen) {
  BatchPlan plan;
  plan.add_move({.kind = MoveKind::kCopyPage, .table = 1, .from = 1});
  plan.add_move({.kind = MoveKind::kZero, .to = 2});
  plan.add_move({.kind = MoveKind::kCopyPage, .from = 3});
  plan.add_move({.kind = MoveKind::kReleasePage, .from = 9});
  plan.add_move({.kind = MoveKind::kCopyPage, .from = 1});
  plan.add_move({.kind = MoveKind::kReleasePage, .from = 4});
  std::vector<std::array<int32_t, 2>> ids;
  for (const Move& move : plan.moves) ids.push_back({move.from, move.to});
  const std::vector<std::array<int32_t, 2>> want = {{9, 0}, {4, 0}, {0, 2}, {3, 0}, {1, 0}, {1, 0}};
  EXPECT_EQ(ids, want);
  EXPECT_EQ(plan.moves.back().table, 1U);
  EXPECT_EQ(plan.moves_of(MoveKind::kCopyPage).size(), 3U);
  EXPECT_EQ(plan.moves_of(MoveKind::kReleasePage)[0].from, 9);
  EXPECT_TRUE(plan.moves_of(MoveKind::kSave).empty());
}

// Sequence 7 starts in batch slot 1 with a prompt of four tokens and computes `count` tokens.
BatchPlan start_plan(int32_t count, float repetition_penalty) {
  constexpr std::array<TokenId, 6> kTokens = {10, 11, 12, 13, 14, 15};
  constexpr std::array<int32_t, 2> kPages = {5, 6};
  constexpr std::array<TokenId, 2> kEnding = {3, 9};
  constexpr std::array<TokenId, 2> kListed = {44, 2};
  BatchPlan plan;
  plan.starts.push_back({.sequence_id = 7,
                         .batch_slot = 1,
                         .sampling = {.repetition_penalty = repetition_penalty},
                         .num_prompt_tokens = 4,
                         .min_length = 6,
                         .max_length = 20,
                         .ending_tokens = plan.add_tokens(kEnding),
                         .logprob_tokens = plan.add_tokens(kListed)});
  plan.page_updates.push_back({.batch_slot = 1, .pages = plan.add_pages(kPages)});
  plan.sequences.push_back(
      {.sequence_id = 7,
       .batch_slot = 1,
       .new_tokens = plan.add_tokens(std::span(kTokens).first(static_cast<size_t>(count)))});
  return plan;
}

// A step that feeds the drawn token after `context` tokens.
BatchPlan feeding_plan(int64_t context) {
  BatchPlan plan;
  plan.sequences.push_back(
      {.sequence_id = 7, .batch_slot = 1, .feeds_drawn_token = true, .context_tokens = context});
  return plan;
}

TEST(BatchSlotsTest, KeepsWhatWasSentOnce) {
  BatchSlots slots(2, 4);
  ASSERT_TRUE(slots.take(start_plan(4, 1)).ok());
  BatchPlan next = feeding_plan(4);
  const std::array<int32_t, 1> page = {8};
  next.page_updates.push_back({.batch_slot = 1, .first = 2, .pages = next.add_pages(page)});
  ASSERT_TRUE(slots.take(next).ok());
  EXPECT_THAT(slots[1].pages[0].ids, ElementsAre(5, 6, 8));
  EXPECT_THAT(slots[1].ending_tokens, ElementsAre(3, 9));
  EXPECT_THAT(slots[1].logprob_tokens, ElementsAre(44, 2));
  EXPECT_THAT(slots[1].forbidden_tokens(5), ElementsAre(3, 9));
  EXPECT_THAT(slots[1].forbidden_tokens(6), IsEmpty());
}

TEST(BatchSlotsTest, AddsComputedOutputToWhatPenaltiesRead) {
  for (const float penalty : {1.2f, 1.0f}) {
    BatchSlots slots(2, 4);
    const BatchPlan plan = start_plan(6, penalty);
    ASSERT_TRUE(slots.take(plan).ok());
    slots.computed(plan.sequences[0], plan.new_tokens(plan.sequences[0]), -1);
    const BatchPlan next = feeding_plan(6);
    ASSERT_TRUE(slots.take(next).ok());
    slots.computed(next.sequences[0], {}, 77);
    if (penalty == 1.0f) {
      EXPECT_THAT(slots[1].output_tokens, IsEmpty()) << "no penalty reads them";
    } else {
      EXPECT_THAT(slots[1].output_tokens, ElementsAre(14, 15, 77));
    }
  }
}

TEST(BatchSlotsTest, AStartForgetsTheSequenceBefore) {
  BatchSlots slots(2, 4);
  ASSERT_TRUE(slots.take(start_plan(4, 1)).ok());
  BatchPlan other;
  other.starts.push_back({.sequence_id = 8, .batch_slot = 1, .sampling = {}});
  other.sequences.push_back({.sequence_id = 8, .batch_slot = 1});
  ASSERT_TRUE(slots.take(other).ok());
  EXPECT_THAT(slots[1].pages[0].ids, IsEmpty());
  EXPECT_THAT(slots[1].ending_tokens, IsEmpty());
  EXPECT_THAT(slots.take(feeding_plan(4)).message(),
              HasSubstr("sequence 7: did not start in batch slot 1"));
}

TEST(BatchSlotsTest, AnAcceptedDraftIsOutputLikeAnyToken) {
  for (const float penalty : {1.2f, 1.0f}) {
    BatchSlots slots(2, 4);
    BatchPlan plan = start_plan(5, penalty);
    ASSERT_TRUE(slots.take(plan).ok());
    slots.computed(plan.sequences[0], plan.new_tokens(plan.sequences[0]), 0);
    slots.accepted(plan.sequences[0], 30);
    if (penalty == 1.0f) {
      EXPECT_THAT(slots[1].output_tokens, IsEmpty());
    } else {
      EXPECT_THAT(slots[1].output_tokens, ElementsAre(14, 30));
    }
  }
}

TEST(BatchSlotsTest, ThePagesOfATableWithAWindowMayBeginLater) {
  for (uint32_t table = 1; table < ops::kMaxPageTables; ++table) {
    BatchSlots slots(2, 6);
    BatchPlan plan = start_plan(4, 1);
    const std::array<int32_t, 2> pages = {3, 4};
    plan.page_updates.push_back(
        {.batch_slot = 1, .table = table, .first = 3, .pages = plan.add_pages(pages)});
    ASSERT_TRUE(slots.take(plan).ok());
    EXPECT_EQ(slots[1].pages[table].first, 3);
    EXPECT_EQ(slots[1].pages[table].ids.size(), 5u);
    EXPECT_EQ(slots[1].pages[table].ids[4], 4);
    plan.page_updates.back().first = 2;
    plan.starts.clear();
    EXPECT_THAT(slots.take(plan).message(), HasSubstr("pages 2 to 4 are sent, it has 3 to 5"));
  }
}

TEST(BatchSlotsTest, RefusesGapsAndSlotsThatDoNotExist) {
  BatchSlots slots(2, 4);
  const auto message = [&](auto change) {
    BatchPlan plan = start_plan(4, 1);
    change(plan);
    return slots.take(plan).message();
  };
  EXPECT_THAT(message([](BatchPlan& plan) { plan.page_updates[0].first = 1; }),
              HasSubstr("pages 1 to 3 are sent, it has 0 to 0; at most 4"));
  EXPECT_THAT(message([](BatchPlan& plan) { plan.starts[0].batch_slot = 2; }),
              HasSubstr("batch slot 2; there are 2"));
  EXPECT_THAT(message([](BatchPlan& plan) { plan.page_updates[0].table = ops::kMaxPageTables; }),
              HasSubstr("pages of table 4 are sent; there are 4"));
  EXPECT_THAT(message([](BatchPlan& plan) { plan.sequences[0].batch_slot = -1; }),
              HasSubstr("sequence 7: batch slot -1; there are 2"));
}

}  // namespace
}  // namespace heddle::request
