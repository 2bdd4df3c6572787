// SPDX-License-Identifier: Apache-2.0
#include "cache/resume_plan.h"

#include <gtest/gtest.h>

namespace heddle::cache {
namespace {

// Pages of 16, a grid of 64.
PrefixCacheOptions options(bool has_states = true) {
  return {.pools = {.num_pages = 100,
                    .page_size = 16,
                    .num_state_slots = has_states ? 4 : 0,
                    .keeps_hidden = has_states}};
}

request::Sequence prompt(int64_t length) {
  Request request;
  request.prompt.assign(static_cast<size_t>(length), 7);
  request.stop.max_new_tokens = 4;
  return {1, std::move(request), 0, std::span<const TokenId>()};
}

ResumePlan plan(const PrefixCacheOptions& options, int64_t length, const PrefixMatch& match) {
  return plan_resume(options, prompt(length), match);
}

TEST(ResumePlan, WithoutAMatchTheSequenceOwnsEveryPage) {
  const ResumePlan cold = plan(options(), 300, {});
  EXPECT_EQ(cold.start, 0);
  EXPECT_EQ(cold.shared, 0);
  EXPECT_EQ(cold.fork, 0);
  EXPECT_EQ(cold.own_pages, 19);
  EXPECT_FALSE(cold.repeats);
}

TEST(ResumePlan, SharesKnownRowsUpToTheForkBeyondTheState) {
  PrefixNode node;
  const ResumePlan fork =
      plan(options(), 300, {.resume = &node, .usable_tokens = 64, .kv_tokens = 230});
  EXPECT_EQ(fork.node, &node);
  EXPECT_EQ(fork.start, 64);
  EXPECT_EQ(fork.fork, 192);
  EXPECT_EQ(fork.shared, 192);
  EXPECT_EQ(fork.own_pages, 19 - 12);
}

TEST(ResumePlan, AStateInsideAPageSharesWholePages) {
  PrefixNode node;
  const ResumePlan resumed =
      plan(options(), 300, {.resume = &node, .usable_tokens = 250, .kv_tokens = 250});
  EXPECT_EQ(resumed.start, 250);
  EXPECT_EQ(resumed.shared, 240);
  EXPECT_EQ(resumed.own_pages, 19 - 15);
}

TEST(ResumePlan, TheForkOfAKnownPromptIsBeforeItsLastToken) {
  PrefixNode node;
  const PrefixMatch whole{.resume = &node, .usable_tokens = 128, .kv_tokens = 256};
  EXPECT_EQ(plan(options(), 256, whole).fork, 192);
  EXPECT_EQ(plan(options(), 257, whole).fork, 256);
}

TEST(ResumePlan, ARepeatedPromptStartsAtItsEndWhereItsHiddenVectorIsKept) {
  PrefixNode resume;
  PrefixNode exact;
  const PrefixMatch match{
      .resume = &resume, .usable_tokens = 64, .kv_tokens = 100, .exact = &exact};
  const ResumePlan repeat = plan(options(), 100, match);
  EXPECT_TRUE(repeat.repeats);
  EXPECT_EQ(repeat.node, &exact);
  EXPECT_EQ(repeat.start, 100);
  EXPECT_EQ(repeat.shared, 96);
  PrefixCacheOptions without = options();
  without.pools.keeps_hidden = false;
  EXPECT_FALSE(plan(without, 100, match).repeats);
  EXPECT_EQ(plan(without, 100, match).start, 64);
}

TEST(ResumePlan, WithoutStatesOrAGridTheSharedPagesEndWithTheResumedTokens) {
  PrefixNode node;
  const PrefixMatch match{.resume = &node, .usable_tokens = 96, .kv_tokens = 230};
  EXPECT_EQ(plan(options(/*has_states=*/false), 300, match).shared, 96);
  PrefixCacheOptions exact = options();
  exact.policy = SnapshotPolicy::kNoBuffer;
  EXPECT_EQ(plan(exact, 300, match).shared, 96);
}

TEST(ResumePlan, TokensComputedForScoresAreNotCountedAsLost) {
  PrefixNode node;
  const PrefixMatch match{.resume = &node, .usable_tokens = 64, .kv_tokens = 300};
  request::Sequence sequence = prompt(300);
  EXPECT_EQ(known_of(sequence, match), 300);
  EXPECT_EQ(explain_loss(options(), sequence, match, 64).last_token, 1);
  sequence.next_scored = 71;  // from row 70 on
  EXPECT_EQ(known_of(sequence, match), 70);
  const CacheLoss lost = explain_loss(options(), sequence, match, 64);
  EXPECT_EQ(lost.grid, 6);
  EXPECT_EQ(lost.eviction + lost.missing_state + lost.last_token, 0);
  sequence.next_scored = 300;
  EXPECT_EQ(known_of(sequence, match), 300) << "all have been scored";
}

}  // namespace
}  // namespace heddle::cache
