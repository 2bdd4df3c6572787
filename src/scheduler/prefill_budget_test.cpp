// SPDX-License-Identifier: Apache-2.0
#include "scheduler/prefill_budget.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace heddle::scheduler {
namespace {

// Tokens set aside for the two running requests of the worked examples.
double reserved() {
  const NewTokenRatio ratio(1);  // begins at 0.7
  return ratio.reserve(1000, 100) + ratio.reserve(9000, 0);
}

PrefillBudget reference_budget(int64_t free_tokens) {
  return {PrefillLimits::reference(), {.free_tokens = free_tokens, .reserved_tokens = reserved()}};
}

PrefillGrant take(PrefillBudget& budget, const PrefillDemand& demand) {
  const PrefillGrant grant = budget.check(demand);
  if (grant.verdict == PrefillVerdict::kAdmit) budget.admit(demand, grant);
  return grant;
}

void expect_admitted(const PrefillGrant& grant, int64_t tokens, bool completes) {
  EXPECT_EQ(grant.verdict, PrefillVerdict::kAdmit);
  EXPECT_EQ(grant.tokens, tokens);
  EXPECT_EQ(grant.completes, completes);
}

TEST(PrefillBudgetTest, AdmitsWhilePromptAndOutputFitMemory) {
  PrefillBudget budget = reference_budget(12000);
  EXPECT_NEAR(reserved(), 3497.2, 1e-9);
  EXPECT_NEAR(budget.remaining_total(), 8502.8, 1e-9);

  expect_admitted(take(budget, {.pending_tokens = 3000, .new_tokens_left = 512}), 3000, true);
  EXPECT_NEAR(budget.remaining_total(), 4989.8, 1e-9);
  EXPECT_EQ(budget.remaining_chunk(), 5192);
  EXPECT_EQ(budget.remaining_input(), 13384);
  EXPECT_EQ(budget.stop(), PrefillVerdict::kAdmit);

  expect_admitted(
      take(budget, {.context_tokens = 2500, .pending_tokens = 3500, .new_tokens_left = 1024}), 3500,
      true);
  EXPECT_NEAR(budget.remaining_total(), 464.8, 1e-9);
  EXPECT_EQ(budget.remaining_chunk(), 1692);
  EXPECT_EQ(budget.remaining_input(), 9884);

  EXPECT_EQ(take(budget, {.pending_tokens = 400, .new_tokens_left = 100}).verdict,
            PrefillVerdict::kNoMemory);
  EXPECT_EQ(budget.num_admitted(), 2);
}

TEST(PrefillBudgetTest, CutsAPromptAtTheChunkAndResumesIt) {
  PrefillBudget budget = reference_budget(30000);
  expect_admitted(take(budget, {.pending_tokens = 3000, .new_tokens_left = 512}), 3000, true);
  EXPECT_NEAR(budget.remaining_total(), 22989.8, 1e-9);
  expect_admitted(take(budget, {.pending_tokens = 7000, .new_tokens_left = 1024}), 5192, false);
  EXPECT_NEAR(budget.remaining_total(), 17796.8, 1e-9);
  EXPECT_EQ(budget.remaining_chunk(), 0);
  EXPECT_EQ(budget.stop(), PrefillVerdict::kBudget);

  PrefillBudget next = reference_budget(20000);
  const double before = next.remaining_total();
  expect_admitted(
      next.resume({.context_tokens = 5192, .pending_tokens = 1808, .new_tokens_left = 1024}), 1808,
      true);
  EXPECT_NEAR(before - next.remaining_total(), 1808 + 1024 + 1, 1e-9);
  EXPECT_EQ(next.remaining_chunk(), 8192 - 1808);
}

TEST(PrefillBudgetTest, WithoutMemoryNoPartOfAPromptIsAdmitted) {
  PrefillBudget budget = reference_budget(12000);
  take(budget, {.pending_tokens = 3000, .new_tokens_left = 512});
  EXPECT_EQ(take(budget, {.pending_tokens = 7000, .new_tokens_left = 1024}).verdict,
            PrefillVerdict::kNoMemory);
}

TEST(PrefillBudgetTest, ATotalThatIsJustEnoughIsNotEnough) {
  PrefillBudget budget(PrefillLimits::reference(), {.free_tokens = 111});
  EXPECT_EQ(budget.check({.pending_tokens = 100, .new_tokens_left = 10}).verdict,
            PrefillVerdict::kNoMemory);
  expect_admitted(budget.check({.pending_tokens = 100, .new_tokens_left = 9}), 100, true);
}

TEST(PrefillBudgetTest, OutputIsClipped) {
  const PrefillBudget budget(PrefillLimits::reference(), {.free_tokens = 100 + 4096 + 2});
  expect_admitted(budget.check({.pending_tokens = 100, .new_tokens_left = int64_t{1} << 30}), 100,
                  true);
}

TEST(PrefillBudgetTest, PinningTakesEvictableTokens) {
  PrefillBudget budget(PrefillLimits::reference(), {.free_tokens = 200});
  const PrefillDemand demand{.context_tokens = 90, .pending_tokens = 100, .new_tokens_left = 9};
  expect_admitted(budget.check(demand), 100, true);
  budget.pin(90);
  EXPECT_EQ(budget.check(demand).verdict, PrefillVerdict::kNoMemory);
  EXPECT_EQ(budget.remaining_now(), 110);
  EXPECT_EQ(budget.remaining_total(), 110);
}

TEST(PrefillBudgetTest, TheFirstRequestMayExceedTheInput) {
  PrefillLimits limits = PrefillLimits::reference();
  limits.max_prefill_tokens = 50;
  PrefillBudget budget(limits, {.free_tokens = 100000});
  expect_admitted(take(budget, {.pending_tokens = 80}), 80, true);
  EXPECT_EQ(budget.stop(), PrefillVerdict::kBudget);

  PrefillBudget second(limits, {.free_tokens = 100000});
  expect_admitted(take(second, {.pending_tokens = 20}), 20, true);
  EXPECT_EQ(take(second, {.pending_tokens = 30}).verdict, PrefillVerdict::kBudget);
  expect_admitted(take(second, {.pending_tokens = 29}), 29, true);
}

TEST(PrefillBudgetTest, AResumedRequestIsThePassesFirst) {
  PrefillLimits limits = PrefillLimits::reference();
  limits.max_prefill_tokens = 50;
  PrefillBudget budget(limits, {.free_tokens = 100000});
  expect_admitted(budget.resume({.context_tokens = 10, .pending_tokens = 5}), 5, true);
  EXPECT_EQ(take(budget, {.pending_tokens = 80}).verdict, PrefillVerdict::kBudget);
}

TEST(PrefillBudgetTest, DecodeTokensOfTheStepCount) {
  PrefillLimits limits = PrefillLimits::reference();
  limits.chunk_tokens = 512;
  const PrefillBudget budget(limits, {.free_tokens = 1000, .mixed_tokens = 100});
  EXPECT_EQ(budget.remaining_total(), 900);
  EXPECT_EQ(budget.remaining_now(), 900);
  EXPECT_EQ(budget.remaining_input(), 16284);
  EXPECT_EQ(budget.remaining_chunk(), 412);
}

TEST(PrefillBudgetTest, BatchSlotsAndStateSlotsAreTakenByAdmissionsOnly) {
  PrefillBudget budget(PrefillLimits::reference(),
                       {.free_tokens = 1000, .free_batch_slots = 1, .free_state_slots = 2});
  budget.resume({.context_tokens = 10, .pending_tokens = 5});
  expect_admitted(take(budget, {.pending_tokens = 5}), 5, true);
  EXPECT_EQ(take(budget, {.pending_tokens = 5}).verdict, PrefillVerdict::kNoBatchSlot);
  PrefillBudget states(PrefillLimits::reference(), {.free_tokens = 1000, .free_state_slots = 1});
  expect_admitted(take(states, {.pending_tokens = 5}), 5, true);
  EXPECT_EQ(take(states, {.pending_tokens = 5}).verdict, PrefillVerdict::kNoState);
}

TEST(PrefillBudgetTest, WithoutChunksPromptsAreNeverCut) {
  PrefillLimits limits = PrefillLimits::reference();
  limits.chunk_tokens = 0;
  PrefillBudget budget(limits, {.free_tokens = 100000, .mixed_tokens = 7});
  expect_admitted(take(budget, {.pending_tokens = 40000}), 40000, true);
}

TEST(PrefillBudgetTest, ReferenceCountsWholePagesOfComputeAndWeTokens) {
  PrefillLimits limits{.page_size = 16, .chunk_tokens = 100};
  PrefillBudget ours(limits, {.free_tokens = 10000});
  take(ours, {.pending_tokens = 33});
  EXPECT_EQ(ours.remaining_chunk(), 67);
  EXPECT_EQ(ours.remaining_input(), 16384 - 33);
  EXPECT_EQ(ours.remaining_now(), 10000 - 48 - 16) << "memory is pages for both";
  limits.round_compute = true;
  PrefillBudget reference(limits, {.free_tokens = 10000});
  take(reference, {.pending_tokens = 33});
  EXPECT_EQ(reference.remaining_chunk(), 52);
  EXPECT_EQ(reference.remaining_input(), 16384 - 48);
}

TEST(PrefillBudgetTest, ChunksEndOnTheGridAndOnPages) {
  const PrefillLimits limits{.page_size = 16, .chunk_grid = 64, .chunk_tokens = 500};
  const PrefillBudget budget(limits, {.free_tokens = 10000});
  expect_admitted(budget.check({.pending_tokens = 1000}), 448, false);
  expect_admitted(budget.check({.context_tokens = 100, .pending_tokens = 1000}), 476, false);
  expect_admitted(budget.check({.pending_tokens = 500}), 500, true);
  const PrefillLimits large_pages{.page_size = 128, .chunk_grid = 64, .chunk_tokens = 250};
  expect_admitted(
      PrefillBudget(large_pages, {.free_tokens = 10000}).check({.pending_tokens = 1000}), 128,
      false);
}

TEST(PrefillBudgetTest, ProgressGoesBeforeAlignmentForThePassesFirst) {
  const PrefillLimits limits{.page_size = 16, .chunk_grid = 64, .chunk_tokens = 40};
  PrefillBudget budget(limits, {.free_tokens = 10000});
  expect_admitted(take(budget, {.pending_tokens = 1000}), 40, false);

  PrefillBudget second(limits, {.free_tokens = 10000});
  expect_admitted(take(second, {.pending_tokens = 8}), 8, true);
  EXPECT_EQ(take(second, {.pending_tokens = 1000}).verdict, PrefillVerdict::kBudget);
}

TEST(PrefillBudgetTest, OnlyOneRequestOfAPassIsCut) {
  const PrefillLimits limits{.page_size = 16, .chunk_grid = 64, .chunk_tokens = 100};
  PrefillBudget budget(limits, {.free_tokens = 10000});
  expect_admitted(take(budget, {.pending_tokens = 1000}), 64, false);
  EXPECT_EQ(budget.check({.context_tokens = 60, .pending_tokens = 1000}).verdict,
            PrefillVerdict::kBudget);
  expect_admitted(take(budget, {.pending_tokens = 30}), 30, true);
}

TEST(PrefillBudgetTest, AResumedRequestProgressesThoughMemoryIsShortOnPaper) {
  PrefillLimits limits = PrefillLimits::reference();
  limits.chunk_tokens = 512;
  const PrefillResources overdrawn{.free_tokens = 10, .reserved_tokens = 100};
  PrefillBudget budget(limits, overdrawn);
  expect_admitted(budget.resume({.context_tokens = 512, .pending_tokens = 900}), 512, false);
  PrefillBudget tight(limits, {.free_tokens = 300});
  expect_admitted(tight.resume({.context_tokens = 512, .pending_tokens = 900}), 300, false);
  PrefillBudget fraction(limits, {.free_tokens = 10, .reserved_tokens = 9.5});
  expect_admitted(fraction.resume({.context_tokens = 512, .pending_tokens = 900}), 512, false);
}

TEST(PrefillBudgetTest, PagesHeldAlreadyAreNotPaidAgain) {
  const PrefillLimits limits{
      .page_size = 16, .chunk_grid = 64, .chunk_tokens = 512, .pages_at_admission = true};
  PrefillBudget budget(limits, {.free_tokens = 10000});
  expect_admitted(take(budget, {.pending_tokens = 1000, .new_tokens_left = 50}), 512, false);
  EXPECT_EQ(budget.remaining_total(), 10000 - 1008 - 16);

  PrefillBudget next(limits, {.free_tokens = 100});
  expect_admitted(next.resume({.context_tokens = 512,
                               .pending_tokens = 488,
                               .new_tokens_left = 50,
                               .held_tokens = 488}),
                  488, true);
  EXPECT_EQ(next.remaining_now(), 100);
  EXPECT_EQ(next.remaining_total(), 50);
}

TEST(PrefillBudgetTest, AStepWithoutRoomForPrefillGivesNoTokens) {
  PrefillLimits limits = PrefillLimits::reference();
  limits.chunk_tokens = 64;
  PrefillBudget budget(limits, {.free_tokens = 1000, .mixed_tokens = 64});
  EXPECT_EQ(budget.check({.pending_tokens = 5}).verdict, PrefillVerdict::kBudget);
  const PrefillGrant grant = budget.resume({.context_tokens = 4, .pending_tokens = 5});
  EXPECT_EQ(grant.verdict, PrefillVerdict::kBudget);
  EXPECT_EQ(grant.tokens, 0);
  EXPECT_EQ(budget.num_admitted(), 0);
}

// In any sequence of calls chunks fit the step, lie on the grid unless they are first or last, and
// what was admitted has the memory it asked for.
TEST(PrefillBudgetTest, GrantsKeepTheirPromisesUnderFuzz) {
  std::mt19937 random(5);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int64_t admitted = 0;
  int64_t cut = 0;
  for (int round = 0; round < 5000; ++round) {
    PrefillLimits limits{.page_size = 1 << pick(0, 7),
                         .chunk_grid = pick(0, 1) == 0 ? 1 : 64,
                         .max_prefill_tokens = pick(100, 2000),
                         .chunk_tokens = pick(1, 600),
                         .pages_at_admission = pick(0, 1) == 0,
                         .round_compute = pick(0, 1) == 0};
    const int64_t free_tokens = pick(0, 40) * limits.page_size * 8;
    PrefillBudget budget(limits, {.free_tokens = free_tokens, .mixed_tokens = pick(0, 50)});
    const int64_t chunk = budget.remaining_chunk();
    const int64_t grid = std::max<int64_t>(limits.chunk_grid, limits.page_size);
    int64_t tokens = 0;
    int64_t memory = 0;
    while (true) {
      const PrefillDemand demand{.context_tokens = pick(0, 300),
                                 .pending_tokens = pick(1, 700),
                                 .new_tokens_left = pick(0, 200)};
      const bool first = budget.num_admitted() == 0;
      const PrefillGrant grant = take(budget, demand);
      if (grant.verdict != PrefillVerdict::kAdmit) break;
      ++admitted;
      cut += grant.completes ? 0 : 1;
      ASSERT_EQ(grant.completes, grant.tokens == demand.pending_tokens);
      if (!grant.completes && !first) {
        ASSERT_EQ((demand.context_tokens + grant.tokens) % grid, 0);
      }
      tokens += grant.tokens;
      memory += limits.pages_at_admission ? demand.pending_tokens : grant.tokens;
      if (grant.completes) memory += demand.new_tokens_left;
      ASSERT_LE(tokens, chunk);
      ASSERT_LE(memory, free_tokens);
      if (budget.stop() != PrefillVerdict::kAdmit) break;
    }
  }
  EXPECT_GT(admitted, 3000);
  EXPECT_GT(cut, 500);
}

TEST(NewTokenRatioTest, DecaysToItsMinimumInSixHundredSteps) {
  NewTokenRatio ratio(1);
  EXPECT_DOUBLE_EQ(ratio.initial(), 0.7);
  EXPECT_DOUBLE_EQ(ratio.minimum(), 0.098);
  ratio.decay();
  EXPECT_NEAR(0.7 - ratio.value(), 0.00100333, 5e-9);
  for (int pass = 1; pass < 100; ++pass) ratio.decay();
  EXPECT_NEAR(ratio.value(), 0.599667, 5e-7);
  for (int pass = 100; pass < 599; ++pass) ratio.decay();
  EXPECT_GT(ratio.value(), 0.0985);
  for (int pass = 599; pass < 1000; ++pass) ratio.decay();
  EXPECT_DOUBLE_EQ(ratio.value(), 0.098);
  ratio.reset();
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
}

TEST(NewTokenRatioTest, ConservativenessScalesItUpToOne) {
  EXPECT_DOUBLE_EQ(NewTokenRatio(0.3).value(), 0.21);
  EXPECT_DOUBLE_EQ(NewTokenRatio(5).value(), 1);
  EXPECT_DOUBLE_EQ(NewTokenRatio(5).minimum(), 0.14);
}

TEST(NewTokenRatioTest, IsEstimatedFromOutputsSoFar) {
  EXPECT_NEAR(NewTokenRatio::estimate(50 + 10, 200 + 500, 2), 0.142653, 5e-7);
  EXPECT_NEAR(NewTokenRatio::estimate(50, 200, 1), 0.348259, 5e-7);
  EXPECT_DOUBLE_EQ(NewTokenRatio::estimate(500, 200, 1), 1);
}

TEST(NewTokenRatioTest, ARetractionNeverLowersIt) {
  NewTokenRatio ratio(1);
  ratio.after_retraction(50 + 10, 200 + 500, 2);
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7) << "the reference goes down to 0.142653";
  for (int pass = 0; pass < 600; ++pass) ratio.decay();
  ratio.after_retraction(50, 200, 1);
  EXPECT_NEAR(ratio.value(), 0.348259, 5e-7);
}

TEST(NewTokenRatioTest, ReservesAShareOfWhatMayStillBeDrawn) {
  const NewTokenRatio ratio(1);
  EXPECT_NEAR(ratio.reserve(1000, 100), 630, 1e-9);
  EXPECT_NEAR(ratio.reserve(9000, 0), 2867.2, 1e-9);
  EXPECT_EQ(ratio.reserve(100, 100), 0);
  EXPECT_EQ(new_tokens_left(100, 101), 0);
}

}  // namespace
}  // namespace heddle::scheduler
