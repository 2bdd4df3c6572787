// SPDX-License-Identifier: Apache-2.0
#include "scheduler/running_set.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_parts_fixture.h"

namespace heddle::scheduler {
namespace {

using request::Sequence;
using request::SequenceStatus;
using ::testing::ElementsAre;

RunningSequence& started(PartsFixture& parts, Sequence& sequence) {
  RunningSequence* const running = parts.running.start(sequence, {}, 0, false);
  EXPECT_NE(running, nullptr);
  return *running;
}

// Plans one step of its own for the sequence, prompt or stream.
void plan(PartsFixture& parts, RunningSequence& running, int64_t num_prompt_tokens = 0) {
  parts.plan.clear();
  if (num_prompt_tokens > 0) {
    parts.running.plan_prefill(running, num_prompt_tokens, parts.plan);
  } else {
    ASSERT_TRUE(running.can_decode());
    ASSERT_TRUE(parts.running.grow(running));
    parts.running.plan_decode(running, {}, 0, parts.plan);
  }
}

TEST(RunningSetTest, ASequenceStartsWithSlotAndPagesOrWithNothing) {
  PartsOptions options;
  options.scheduler.cache.pools.num_pages = 3;  // of four tokens
  options.scheduler.max_running = 2;
  PartsFixture parts(options);
  Sequence& large = parts.make(13, 1);
  EXPECT_EQ(parts.running.start(large, {}, 0, false), nullptr);
  EXPECT_EQ(parts.running.num_free_slots(), 2);
  EXPECT_TRUE(large.pages.empty());
  EXPECT_EQ(large.batch_slot, -1);

  Sequence& small = parts.make(12, 1);
  const RunningSequence& running = started(parts, small);
  EXPECT_EQ(running.batch_slot, 0);
  EXPECT_EQ(small.status, SequenceStatus::kRunning);
  EXPECT_EQ(small.pages.size(), 3u);
  EXPECT_EQ(parts.running.num_free_slots(), 1);
  parts.running.check_invariants(0);
}

TEST(RunningSetTest, TheNextTokenIsPlannedBeforeTheLastOneIsKnown) {
  PartsFixture parts;
  Sequence& sequence = parts.make(10, 3);
  RunningSequence& running = started(parts, sequence);
  EXPECT_TRUE(running.can_prefill());
  EXPECT_FALSE(running.can_decode());
  plan(parts, running, 6);
  EXPECT_FALSE(parts.plan.sequences[0].sample) << "the prompt goes on";
  parts.complete();
  EXPECT_FALSE(parts.drew);
  EXPECT_EQ(sequence.num_computed, 6);
  EXPECT_EQ(parts.running.prefilled_tokens(), 6);

  plan(parts, running, 4);
  EXPECT_TRUE(parts.plan.sequences[0].sample);
  EXPECT_FALSE(running.can_prefill());
  EXPECT_EQ(running.draws_in_flight, 1);
  EXPECT_TRUE(running.can_decode()) << "with the token about to be drawn";
  EXPECT_EQ(parts.running.decode_work().new_tokens, 1);
  parts.complete();
  EXPECT_TRUE(parts.drew);

  plan(parts, running);
  EXPECT_FALSE(parts.plan.sequences[0].feeds_drawn_token) << "the host has seen it";
  const request::BatchPlan second = parts.plan;
  plan(parts, running);
  EXPECT_TRUE(parts.plan.sequences[0].feeds_drawn_token);
  EXPECT_EQ(parts.plan.sequences[0].context_tokens, 11);
  EXPECT_EQ(running.steps_in_flight, 2);
  EXPECT_FALSE(running.can_decode()) << "three tokens are drawn or about to be";
  const request::BatchPlan third = parts.plan;
  parts.plan = second;
  parts.complete();
  parts.plan = third;
  parts.complete();
  EXPECT_EQ(sequence.num_output_tokens(), 3);
  EXPECT_EQ(sequence.num_computed, 12) << "the last token drawn is never computed";
  EXPECT_EQ(parts.running.prefilled_tokens(), 11) << "what a step fed itself is no prompt";
  parts.running.check_invariants(0);
}

TEST(RunningSetTest, DraftsCountWhenTheyAreAccepted) {
  PartsFixture parts;
  Sequence& sequence = parts.make(10, 8);
  RunningSequence& running = started(parts, sequence);
  plan(parts, running, 10);
  parts.complete();
  const std::vector<TokenId> drafts = {21, 22, 23};
  // How many drafts hold, 0 to 3; then the lengths.
  for (const int64_t accepted : {1, 0, 3}) {
    const int64_t computed = sequence.num_computed;
    parts.plan.clear();
    ASSERT_TRUE(running.can_decode());
    ASSERT_TRUE(parts.running.grow(running, 3));
    parts.running.plan_decode(running, {drafts, {}}, 0, parts.plan);
    EXPECT_THAT(parts.plan.drafts(parts.plan.sequences[0]), ElementsAre(21, 22, 23));
    EXPECT_EQ(running.num_planned, computed + 4);
    EXPECT_FALSE(running.can_decode()) << "the number of tokens is not known yet";
    std::vector<request::SampledToken> drawn;
    for (int64_t i = 0; i <= accepted; ++i) {
      drawn.push_back({.sequence_id = sequence.id, .token = static_cast<TokenId>(21 + i)});
    }
    EXPECT_EQ(parts.running.complete(parts.plan.sequences[0], drawn), accepted + 1);
    EXPECT_EQ(sequence.num_computed, computed + 1 + accepted);
    EXPECT_EQ(running.num_planned, sequence.num_computed);
    EXPECT_EQ(sequence.num_pending(), 1) << "the token drawn last";
    parts.running.check_invariants(0);
  }
  EXPECT_EQ(sequence.draft_report.verify_steps, 3);
  EXPECT_EQ(sequence.draft_report.accepted_tokens, 4);
  EXPECT_EQ(sequence.draft_report.rejected_tokens, 5);
}

// A length that a step advances twice shows in long texts. Each step with drafts counts its draws
// once, however many drafts are accepted.
TEST(RunningSetTest, ALongTextCountsEveryTokenOnce) {
  PartsOptions options;
  options.scheduler.cache.pools.num_pages = 4000;
  PartsFixture parts(options);
  Sequence& sequence = parts.make(10, 20000);
  RunningSequence& running = started(parts, sequence);
  plan(parts, running, 10);
  parts.complete();
  const std::vector<TokenId> drafts = {21, 22, 23};
  std::mt19937 random(7);
  int64_t num_tokens = 11, num_steps = 0, num_accepted = 0;
  for (; num_tokens < 10500; ++num_steps) {
    parts.plan.clear();
    ASSERT_TRUE(running.can_decode());
    ASSERT_TRUE(parts.running.grow(running, 3));
    parts.running.plan_decode(running, {drafts, {}}, 0, parts.plan);
    ASSERT_EQ(parts.plan.sequences[0].context_tokens, num_tokens - 1);
    const auto accepted = static_cast<int64_t>(random() % 4);
    std::vector<request::SampledToken> drawn;
    for (int64_t i = 0; i < accepted; ++i) {
      drawn.push_back({.sequence_id = sequence.id, .token = drafts[static_cast<size_t>(i)]});
    }
    drawn.push_back({.sequence_id = sequence.id, .token = 7});
    ASSERT_EQ(parts.running.complete(parts.plan.sequences[0], drawn), accepted + 1);
    num_tokens += accepted + 1;
    num_accepted += accepted;
    ASSERT_EQ(sequence.num_tokens(), num_tokens);
    ASSERT_EQ(sequence.num_computed, num_tokens - 1);
    ASSERT_EQ(running.num_planned, num_tokens - 1);
    if (num_steps % 500 == 0) parts.running.check_invariants(0);
  }
  EXPECT_EQ(sequence.draft_report.verify_steps, num_steps);
  EXPECT_EQ(sequence.draft_report.accepted_tokens, num_accepted);
  EXPECT_EQ(sequence.draft_report.rejected_tokens, 3 * num_steps - num_accepted);
}

// A network that drafts reads the token after each row of a prompt. After a piece that is not the
// last one, that is the prompt's next token, and nothing is drawn.
TEST(RunningSetTest, APieceOfAPromptNamesTheTokenBehindIt) {
  PartsFixture parts;
  Sequence& sequence = parts.make(std::vector<TokenId>{11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, 8);
  RunningSequence& running = started(parts, sequence);
  for (const int32_t end : {3, 7}) {
    plan(parts, running, end - sequence.num_computed);
    EXPECT_FALSE(parts.plan.sequences[0].sample);
    EXPECT_EQ(parts.plan.sequences[0].next_token, 11 + end);
    parts.complete();
  }
  plan(parts, running, 3);
  EXPECT_TRUE(parts.plan.sequences[0].sample) << "the token that is drawn follows";
}

TEST(RunningSetTest, AcceptedDraftsOfAReleasedSequenceWereComputed) {
  PartsFixture parts;
  Sequence& sequence = parts.make(10, 8);
  RunningSequence& running = started(parts, sequence);
  plan(parts, running, 10);
  parts.complete();
  parts.plan.clear();
  ASSERT_TRUE(parts.running.grow(running, 2));
  const std::vector<TokenId> drafts = {21, 22};
  parts.running.plan_decode(running, {drafts, {}}, 0, parts.plan);
  running.leaving = Leaving::kDone;
  sequence.status = SequenceStatus::kEnding;
  const std::vector<request::SampledToken> drawn = {{.sequence_id = sequence.id, .token = 21},
                                                    {.sequence_id = sequence.id, .token = 30}};
  EXPECT_EQ(parts.running.complete(parts.plan.sequences[0], drawn), 1);
  EXPECT_EQ(sequence.tokens.back(), 21) << "the one drawn last is dropped";
  EXPECT_EQ(sequence.num_computed, sequence.num_tokens());
}

TEST(RunningSetTest, APlanSendsOnlyWhatTheRunnerDoesNotKnow) {
  PartsFixture parts;
  Sequence& sequence = parts.make(10, 8);
  sequence.request.sampling.repetition_penalty = 1.5f;
  RunningSequence& running = started(parts, sequence);
  plan(parts, running, 10);
  EXPECT_EQ(parts.plan.starts.size(), 1u);
  ASSERT_EQ(parts.plan.page_updates.size(), 1u);
  EXPECT_EQ(parts.plan.pages, sequence.pages);
  parts.complete();
  for (int64_t computed = 10; computed < 14; ++computed) {
    const bool needs_page = computed == 12;  // pages are of four tokens
    plan(parts, running);
    EXPECT_TRUE(parts.plan.starts.empty());
    EXPECT_EQ(parts.plan.page_updates.size(), needs_page ? 1u : 0u);
    for (const auto& update : parts.plan.page_updates) EXPECT_EQ(update.first, 3);
    EXPECT_EQ(parts.plan.pages.size(), needs_page ? 1u : 0u);
    EXPECT_EQ(parts.plan.tokens.size(), 1u) << "the one that the host has seen";
    parts.complete();
  }
  plan(parts, running);
  parts.running.abandon(parts.plan.sequences[0]);
  plan(parts, running);
  ASSERT_EQ(parts.plan.starts.size(), 1u) << "the runner may not have taken it over";
  EXPECT_EQ(parts.plan.starts[0].output_tokens.count, 4) << "those computed, for the penalty";
  EXPECT_EQ(parts.plan.pages, sequence.pages);
}

TEST(RunningSetTest, TokensOfAnAbandonedStepArePlannedAgain) {
  PartsFixture parts;
  RunningSequence& running = started(parts, parts.make(10, 3));
  plan(parts, running, 10);
  EXPECT_EQ(running.num_planned, 10);
  parts.running.abandon(parts.plan.sequences[0]);
  EXPECT_EQ(running.num_planned, 0);
  EXPECT_EQ(running.steps_in_flight, 0);
  EXPECT_EQ(running.draws_in_flight, 0);
  EXPECT_TRUE(running.can_prefill());
}

TEST(RunningSetTest, AStepThatSkipsAnEndedSequenceComputesNothing) {
  PartsFixture parts;
  Sequence& sequence = parts.make(10, 5);
  RunningSequence& running = started(parts, sequence);
  plan(parts, running, 10);
  parts.complete();
  plan(parts, running);
  const request::SampledToken skipped{.skipped = true};
  EXPECT_EQ(parts.running.complete(parts.plan.sequences[0], {&skipped, 1}), 0);
  EXPECT_EQ(sequence.num_computed, 10);
  EXPECT_EQ(running.num_planned, 10);
  EXPECT_EQ(sequence.num_output_tokens(), 1);
}

TEST(RunningSetTest, ASequenceThatLeavesKeepsItsPagesUntilItsLastStepEnds) {
  PartsFixture parts;
  Sequence& sequence = parts.make(10, 5);
  RunningSequence& running = started(parts, sequence);
  plan(parts, running, 10);
  running.leaving = Leaving::kAborted;
  sequence.status = SequenceStatus::kEnding;
  EXPECT_TRUE(parts.running.any_leaving());
  EXPECT_FALSE(running.is_removable());
  EXPECT_FALSE(running.can_decode() || running.can_prefill()) << "it takes no part in later plans";
  parts.running.check_invariants(1);
  parts.complete();
  EXPECT_EQ(sequence.num_output_tokens(), 0) << "a released sequence wants no more tokens";
  ASSERT_TRUE(running.is_removable());
  EXPECT_FALSE(sequence.pages.empty());
  parts.running.remove(running);
  EXPECT_TRUE(parts.running.empty());
  EXPECT_TRUE(sequence.pages.empty());
  EXPECT_EQ(sequence.batch_slot, -1);
}

TEST(RunningSetTest, AFreedBatchSlotIsTakenNextAndTheOrderIsThatOfTheStarts) {
  PartsFixture parts;
  RunningSequence& first = started(parts, parts.make(4, 1));
  started(parts, parts.make(4, 1));
  first.leaving = Leaving::kPaused;
  parts.running.remove(first);
  const RunningSequence& third = started(parts, parts.make(4, 1));
  EXPECT_EQ(third.batch_slot, 0);
  EXPECT_THAT(parts.running_ids(), ElementsAre(1, 2));
}

TEST(RunningSetDeathTest, ASequenceIsNotRemovedUnderAStep) {
  PartsFixture parts;
  RunningSequence& running = started(parts, parts.make(4, 1));
  plan(parts, running, 4);
  running.leaving = Leaving::kDone;
  EXPECT_DEATH(parts.running.remove(running), "is_removable");
}

}  // namespace
}  // namespace heddle::scheduler
