// SPDX-License-Identifier: Apache-2.0
#include "scheduler/pace.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

// Steps with endless backlog and running streams: P and D.
std::string steps(DecodeInterleave& interleave, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) {
    const StepKind kind = interleave.next(true, true);
    result += kind == StepKind::kPrefill ? 'P' : 'D';
    interleave.ran(kind);
  }
  return result;
}

TEST(DecodeInterleaveTest, AStreamAdvancesAtLeastEverySecondStep) {
  DecodeInterleave interleave(1);
  EXPECT_EQ(steps(interleave, 8), "PDPDPDPD");
}

TEST(DecodeInterleaveTest, SeveralPrefillsForADecode) {
  DecodeInterleave interleave(3);
  EXPECT_EQ(steps(interleave, 9), "PPPDPPPDP");
}

TEST(DecodeInterleaveTest, TheReferenceServesPromptsFirst) {
  DecodeInterleave interleave(0);
  EXPECT_EQ(steps(interleave, 6), "PPPPPP");
}

TEST(DecodeInterleaveTest, RunsWhatCanRun) {
  DecodeInterleave interleave(1);
  EXPECT_EQ(interleave.next(false, false), StepKind::kIdle);
  EXPECT_EQ(interleave.next(false, true), StepKind::kDecode);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(interleave.next(true, false), StepKind::kPrefill);
    interleave.ran(StepKind::kPrefill);
  }
  EXPECT_EQ(steps(interleave, 3), "DPD") << "the stream that began meanwhile is next";
  interleave.ran(StepKind::kPrefill);
  interleave.ran(StepKind::kIdle);
  EXPECT_EQ(steps(interleave, 1), "D") << "idling advances no stream";
}

// Steps of `tokens` prompt tokens each on a device that takes a millisecond for a token.
void run_prefills(StepPace& pace, int count, int64_t tokens, double& now) {
  for (int i = 0; i < count; ++i) {
    pace.begin_step();
    pace.add_prefill(tokens, 0);
    pace.end_step(1, now);
    now += 1e-3 * static_cast<double>(tokens);
    pace.step_completed(now);
  }
}

StepWork one_stream() {
  StepWork work;
  work.add(1, 0);
  return work;
}

TEST(StepPaceTest, WithoutATargetOrStreamsPromptsAreNotLimited) {
  const PrefillBudget budget({.chunk_tokens = 512}, {.free_tokens = 10000});
  constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  StepPace without({});
  EXPECT_FALSE(without.has_target());
  without.limit_prefills(one_stream());
  EXPECT_EQ(without.max_prefill_tokens(budget, 0), kUnlimited);
  StepPace with({.target_itl_ms = 100});
  with.limit_prefills({});
  EXPECT_EQ(with.max_prefill_tokens(budget, 0), kUnlimited);
}

TEST(StepPaceTest, PromptsGetTheTimeThatTheStreamsLeave) {
  StepPace pace({.target_itl_ms = 200});
  PrefillBudget budget({.chunk_tokens = 512}, {.free_tokens = 10000});
  pace.limit_prefills(one_stream());
  EXPECT_EQ(pace.max_prefill_tokens(budget, 0), kLeastChunkTokens) << "nothing is known yet";
  double now = 0;
  run_prefills(pace, 5, 100, now);
  pace.limit_prefills(one_stream());
  EXPECT_EQ(pace.max_prefill_tokens(budget, 0), 199);
  pace.begin_step();
  pace.add_prefill(120, 0);
  EXPECT_EQ(pace.max_prefill_tokens(budget, 0), 79);
  pace.add_prefill(70, 0);
  EXPECT_EQ(pace.max_prefill_tokens(budget, 0), kLeastChunkTokens) << "the first gets at least so";
  ASSERT_GT(budget.resume({.pending_tokens = 190, .held_tokens = 190}).tokens, 0);
  EXPECT_EQ(pace.max_prefill_tokens(budget, 0), 9) << "a later one does not";
}

TEST(StepPaceTest, RatesAreMeasuredFromTheEndOfTheStepBefore) {
  StepPace pace({});
  for (const double planned : {0.0, 0.01}) {  // two in flight
    pace.begin_step();
    pace.add_prefill(100, 0);
    pace.end_step(1, planned);
  }
  EXPECT_EQ(pace.num_steps_in_flight(), 2);
  pace.step_completed(0.1);
  EXPECT_DOUBLE_EQ(pace.rates().prefill_tokens_per_second, 1000);
  pace.step_completed(0.2);
  EXPECT_DOUBLE_EQ(pace.rates().prefill_tokens_per_second, 1000);
  EXPECT_EQ(pace.rates().decode_tokens_per_second, 0) << "no stream has run";
  pace.begin_step();
  pace.add_decode(50);
  pace.end_step(1, 0.2);
  pace.step_completed(0.25);
  EXPECT_NEAR(pace.rates().decode_tokens_per_second, 20, 1e-9);
}

class DraftingPaceTest : public ::testing::Test {
 protected:
  void run(int64_t num_drafts, int64_t num_made, double seconds = 0.1, bool warms_up = false) {
    for (int64_t i = 0; i < speculative::DraftCost::kPlainTries; ++i) {
      pace_.begin_step();
      pace_.add_decode(50, num_drafts, num_made);
      pace_.end_step(1, now_);
      pace_.step_completed(now_ += seconds, {.num_tokens = 1 + num_drafts, .warms_up = warms_up});
    }
  }

  [[nodiscard]] double plain_seconds() const { return pace_.draft_cost().plain_seconds(1); }

  [[nodiscard]] double ratio(int64_t num_rows) const {
    return pace_.draft_cost().ratio(1, num_rows);
  }

  StepPace pace_{{.makes_drafts = true}};
  double now_ = 0;
};

TEST_F(DraftingPaceTest, AStepThatMakesOtherThanItVerifiesTellsNothingAboutDrafts) {
  run(0, 3);
  EXPECT_EQ(plain_seconds(), 0);
  run(0, 0);
  EXPECT_EQ(plain_seconds(), 0) << "the first of them may have waited for drafts";
  run(0, 0);
  EXPECT_NEAR(plain_seconds(), 0.1, 1e-9);
  const double expected = ratio(4);
  run(3, 0, 0.15);
  EXPECT_EQ(ratio(4), expected);
  run(3, 3, 0.15);
  EXPECT_NEAR(ratio(4), 1.5, 1e-9);
}

TEST_F(DraftingPaceTest, AStepThatWarmsUpTeachesNothing) {
  run(0, 0, 5, /*warms_up=*/true);
  EXPECT_EQ(plain_seconds(), 0);
  EXPECT_EQ(pace_.rates().decode_tokens_per_second, 0);
  run(0, 0);
  EXPECT_NEAR(plain_seconds(), 0.1, 1e-9);
}

TEST(StepPaceTest, AnAbandonedStepTeachesNothing) {
  StepPace pace({});
  pace.begin_step();
  pace.add_prefill(100, 0);
  pace.end_step(1, 0);
  pace.step_abandoned();
  EXPECT_EQ(pace.num_steps_in_flight(), 0);
  EXPECT_EQ(pace.rates().prefill_tokens_per_second, 0);
}

}  // namespace
}  // namespace heddle::scheduler
