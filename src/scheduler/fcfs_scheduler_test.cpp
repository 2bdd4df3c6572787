// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fcfs_scheduler.h"

#include <map>
#include <memory>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_runner.h"

namespace heddle::scheduler {
namespace {

using ::heddle::testing::FakeRunner;
using request::BatchPlan;
using request::Sequence;
using request::SequenceStatus;
using request::StepOutput;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SchedulerOptions kRoomy{.num_pages = 1000,
                                  .page_size = 4,
                                  .num_state_slots = 16,
                                  .needs_state = true,
                                  .max_running = 16,
                                  .max_step_tokens = 256,
                                  .chunked_prefill_tokens = 256,
                                  .max_queued = 100,
                                  .chunk_grid = 8};

// A scheduler, its runner and its sequences; plays the engine's part.
class Bench {
 public:
  explicit Bench(const SchedulerOptions& options)
      : scheduler(options),
        runner({.num_pages = options.num_pages,
                .page_size = options.page_size,
                .num_state_slots = options.num_state_slots,
                .max_step_tokens = options.max_step_tokens,
                .max_step_sequences = options.max_running}) {}

  Sequence& make(int64_t prompt_tokens, int64_t max_new_tokens, std::vector<TokenId> stop_ids = {},
                 int64_t min_new_tokens = 0) {
    Request request;
    request.id = fmt::format("{}", sequences.size());
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>((i * 7 + std::ssize(sequences) * 13) % 256));
    }
    request.stop = {.max_new_tokens = max_new_tokens,
                    .min_new_tokens = min_new_tokens,
                    .token_ids = std::move(stop_ids)};
    sequences.push_back(std::make_unique<Sequence>(std::ssize(sequences), std::move(request), 0,
                                                   std::span<const TokenId>()));
    return *sequences.back();
  }

  Sequence& submit(int64_t prompt_tokens, int64_t max_new_tokens) {
    Sequence& sequence = make(prompt_tokens, max_new_tokens);
    const Status status = scheduler.submit(sequence);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return sequence;
  }

  static bool done(const Sequence& sequence) {
    const bool stopped =
        sequence.num_output_tokens() > 0 && sequence.ends_text(sequence.tokens.back());
    return stopped || (sequence.num_output_tokens() >= sequence.request.stop.max_new_tokens &&
                       sequence.num_computed >= sequence.num_prompt_tokens);
  }

  // One step; false when nothing could run.
  bool step() {
    scheduler.plan(plan);
    scheduler.check_invariants();
    if (plan.sequences.empty()) return false;
    Result<StepOutput> output = runner.run(plan);
    EXPECT_TRUE(output.ok());
    scheduler.complete(plan, *output);
    for (const auto& sequence : sequences) {
      if (sequence->status == SequenceStatus::kRunning && done(*sequence))
        scheduler.release(*sequence);
    }
    scheduler.check_invariants();
    return true;
  }

  // (id, new tokens) of the last plan.
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> planned() const {
    std::vector<std::pair<int64_t, int64_t>> result;
    for (const auto& sequence : plan.sequences) {
      result.emplace_back(sequence.sequence_id, std::ssize(sequence.new_tokens));
    }
    return result;
  }

  FcfsScheduler scheduler;
  FakeRunner runner;
  std::vector<std::unique_ptr<Sequence>> sequences;
  BatchPlan plan;
};

std::vector<TokenId> expected_output(const Sequence& sequence) {
  std::vector<TokenId> tokens(sequence.tokens.begin(),
                              sequence.tokens.begin() + sequence.num_prompt_tokens);
  std::vector<TokenId> output;
  while (std::ssize(output) < sequence.request.stop.max_new_tokens) {
    std::span<const TokenId> forbidden;
    if (std::ssize(output) < sequence.request.stop.min_new_tokens)
      forbidden = sequence.ending_tokens;
    tokens.push_back(FakeRunner::next_token(tokens, forbidden));
    output.push_back(tokens.back());
    if (sequence.ends_text(tokens.back())) break;
  }
  return output;
}

std::vector<TokenId> output_of(const Sequence& sequence) {
  return {sequence.output_tokens().begin(), sequence.output_tokens().end()};
}

TEST(FcfsSchedulerTest, PrefillsThenDecodesOneTokenAStep) {
  Bench bench(kRoomy);
  Sequence& sequence = bench.submit(10, 3);
  ASSERT_TRUE(bench.step());
  EXPECT_THAT(bench.planned(), ElementsAre(std::pair(0, 10)));
  EXPECT_THAT(bench.plan.zero_state_slots, ElementsAre(sequence.state_slot));
  ASSERT_TRUE(bench.step());
  EXPECT_THAT(bench.planned(), ElementsAre(std::pair(0, 1)));
  EXPECT_THAT(bench.plan.zero_state_slots, IsEmpty());
  ASSERT_TRUE(bench.step());
  EXPECT_FALSE(bench.step());
  EXPECT_EQ(output_of(sequence), expected_output(sequence));
  EXPECT_EQ(bench.scheduler.stats().pages_used, 0);
  EXPECT_EQ(bench.scheduler.stats().state_slots_used, 0);
}

TEST(FcfsSchedulerTest, CutsLongPromptsOnTheGridWhileRunningStreamsAdvance) {
  SchedulerOptions options = kRoomy;
  options.chunked_prefill_tokens = 21;
  Bench bench(options);
  bench.submit(4, 50);
  ASSERT_TRUE(bench.step());
  bench.submit(45, 1);
  bench.submit(3, 5);
  ASSERT_TRUE(bench.step());  // 16 of 21 on the grid of 8; the third gets what is left
  EXPECT_THAT(bench.planned(), ElementsAre(std::pair(0, 1), std::pair(1, 16), std::pair(2, 3)));
  ASSERT_TRUE(bench.step());
  EXPECT_THAT(bench.planned(), ElementsAre(std::pair(0, 1), std::pair(1, 16), std::pair(2, 1)));
  ASSERT_TRUE(bench.step());
  EXPECT_THAT(bench.planned(), ElementsAre(std::pair(0, 1), std::pair(1, 13), std::pair(2, 1)));
  EXPECT_THAT(bench.runner.complaints(), IsEmpty());
}

TEST(FcfsSchedulerTest, PrefersProgressToTheGridWhenTheBudgetIsSmallerThanIt) {
  SchedulerOptions options = kRoomy;
  options.chunked_prefill_tokens = 3;
  Bench bench(options);
  bench.submit(8, 1);
  std::vector<int64_t> chunks;
  while (bench.step()) chunks.push_back(bench.planned()[0].second);
  EXPECT_THAT(chunks, ElementsAre(3, 3, 2));
}

TEST(FcfsSchedulerTest, DecodingTokensCountAgainstTheStepsTokens) {
  SchedulerOptions options = kRoomy;
  options.max_step_tokens = 10;
  options.chunk_grid = 1;
  Bench bench(options);
  for (int i = 0; i < 4; ++i) bench.submit(1, 20);
  ASSERT_TRUE(bench.step());
  bench.submit(20, 1);
  ASSERT_TRUE(bench.step());
  EXPECT_THAT(bench.planned().back(), std::pair(4, 6));
  EXPECT_THAT(bench.runner.complaints(), IsEmpty());
}

TEST(FcfsSchedulerTest, KeepsOrderWhenTheHeadDoesNotFit) {
  SchedulerOptions options = kRoomy;
  options.num_pages = 10;
  Bench bench(options);
  bench.submit(20, 2);  // 5 pages
  bench.submit(30, 2);  // 8 pages: waits
  bench.submit(1, 2);   // would fit, does not overtake
  ASSERT_TRUE(bench.step());
  EXPECT_THAT(bench.planned(), ElementsAre(std::pair(0, 20)));
  ASSERT_TRUE(bench.step());
  ASSERT_TRUE(bench.step());
  EXPECT_THAT(bench.planned(), ElementsAre(std::pair(1, 30), std::pair(2, 1)));
}

TEST(FcfsSchedulerTest, TakesPagesAndSlotTogetherOrNotAtAll) {
  SchedulerOptions options = kRoomy;
  options.num_state_slots = 2;
  Bench bench(options);
  for (int i = 0; i < 3; ++i) bench.submit(4, 4);
  ASSERT_TRUE(bench.step());
  EXPECT_EQ(bench.scheduler.stats().num_running, 2);
  EXPECT_EQ(bench.scheduler.stats().num_waiting, 1);
  EXPECT_TRUE(bench.sequences[2]->pages.empty());
  EXPECT_EQ(bench.scheduler.stats().pages_used, 2);
}

TEST(FcfsSchedulerTest, RetractsTheYoungestWhenPagesRunOutAndLosesNothing) {
  SchedulerOptions options = kRoomy;
  options.num_pages = 6;
  Bench bench(options);
  Sequence& oldest = bench.submit(4, 15);
  Sequence& youngest = bench.submit(4, 15);
  while (bench.step()) {
    EXPECT_EQ(oldest.num_retractions, 0);
  }
  EXPECT_GE(youngest.num_retractions, 1);
  EXPECT_EQ(youngest.num_retractions, 1) << "nobody left in between, so nobody may be admitted";
  EXPECT_EQ(output_of(oldest), expected_output(oldest));
  EXPECT_EQ(output_of(youngest), expected_output(youngest));
  EXPECT_THAT(bench.runner.complaints(), IsEmpty());
}

TEST(FcfsSchedulerTest, RefusesWhatCanNeverFit) {
  SchedulerOptions options = kRoomy;
  options.num_pages = 10;
  Bench bench(options);
  EXPECT_TRUE(bench.scheduler.check_fits(bench.make(40, 1)).ok());
  EXPECT_TRUE(bench.scheduler.check_fits(bench.make(40, 0)).ok());
  Sequence& large = bench.make(30, 12);
  const Status status = bench.scheduler.submit(large);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      status.message(),
      HasSubstr("needs room for 41 tokens (30 in the prompt, max_new_tokens = 12), but the KV "
                "pool holds 40"));
  EXPECT_FALSE(bench.step());
}

TEST(FcfsSchedulerTest, BoundsTheQueueAndTakesMoreWhenItDrains) {
  SchedulerOptions options = kRoomy;
  options.max_queued = 2;
  options.max_running = 1;
  Bench bench(options);
  bench.submit(4, 2);
  bench.submit(4, 2);
  const Status status = bench.scheduler.submit(bench.make(4, 2));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("2 requests are waiting, max_queued_requests = 2"));
  ASSERT_TRUE(bench.step());
  bench.submit(4, 2);
}

TEST(FcfsSchedulerTest, ComputesPromptsThatWantNoOutputWithoutDrawing) {
  Bench bench(kRoomy);
  Sequence& sequence = bench.submit(300, 0);
  ASSERT_TRUE(bench.step());
  EXPECT_FALSE(bench.plan.sequences[0].sample);
  ASSERT_TRUE(bench.step());
  EXPECT_FALSE(bench.plan.sequences[0].sample);
  EXPECT_EQ(sequence.num_computed, 300);
  EXPECT_FALSE(bench.step());
  EXPECT_EQ(bench.scheduler.stats().pages_used, 0);
}

TEST(FcfsSchedulerTest, ForbidsEndingTokensUntilMinNewTokens) {
  Bench bench(kRoomy);
  Sequence& sequence = bench.make(5, 10, {1, 2, 3}, 4);
  ASSERT_TRUE(bench.scheduler.submit(sequence).ok());
  for (int i = 0; i < 5; ++i) {
    bench.scheduler.plan(bench.plan);
    EXPECT_EQ(std::ssize(bench.plan.sequences[0].forbidden_tokens), i < 4 ? 3 : 0) << i;
    Result<StepOutput> output = bench.runner.run(bench.plan);
    bench.scheduler.complete(bench.plan, *output);
  }
}

TEST(FcfsSchedulerTest, ReleasesFromAnyPlaceAndTwice) {
  SchedulerOptions options = kRoomy;
  options.max_running = 2;
  options.chunked_prefill_tokens = 8;
  Bench bench(options);
  Sequence& in_prefill = bench.submit(30, 5);
  Sequence& waiting = bench.submit(4, 5);
  ASSERT_TRUE(bench.step());
  bench.scheduler.release(in_prefill);
  bench.scheduler.release(waiting);
  bench.scheduler.release(waiting);
  bench.scheduler.release(bench.make(1, 1));  // never submitted
  bench.scheduler.check_invariants();
  EXPECT_EQ(bench.scheduler.stats().pages_used, 0);
  EXPECT_FALSE(bench.step());
}

TEST(FcfsSchedulerTest, PassesOverSequencesReleasedWhileTheStepRan) {
  Bench bench(kRoomy);
  Sequence& gone = bench.submit(4, 5);
  Sequence& stays = bench.submit(4, 5);
  bench.scheduler.plan(bench.plan);
  Result<StepOutput> output = bench.runner.run(bench.plan);
  bench.scheduler.release(gone);
  bench.scheduler.complete(bench.plan, *output);
  EXPECT_EQ(gone.num_output_tokens(), 0);
  EXPECT_EQ(stays.num_output_tokens(), 1);
  bench.scheduler.check_invariants();
}

TEST(FcfsSchedulerTest, KeepsAFailedDrawOutOfTheOutput) {
  Bench bench(kRoomy);
  Sequence& sequence = bench.submit(4, 5);
  bench.runner.sequence_error = [](const auto&) { return internal_error("not a number"); };
  bench.scheduler.plan(bench.plan);
  Result<StepOutput> output = bench.runner.run(bench.plan);
  bench.scheduler.complete(bench.plan, *output);
  EXPECT_EQ(sequence.num_output_tokens(), 0);
  EXPECT_EQ(sequence.num_computed, 4);
}

TEST(FcfsSchedulerTest, LowersRowsThatCouldNotAllAdvance) {
  SchedulerOptions options = kRoomy;
  options.num_state_slots = 5;
  EXPECT_EQ(FcfsScheduler(options).options().max_running, 5);
  options.max_step_tokens = 3;
  EXPECT_EQ(FcfsScheduler(options).options().max_running, 3);
}

// Random pools, arrivals, lengths, stop ids and cancellations. Every sequence that was not
// cancelled gets exactly the tokens it would get alone; every step every decoding sequence
// advances; at the end the pools are empty. The runner complains about rows, states and plans that
// are not as they should be.
TEST(FcfsSchedulerTest, LosesAndDuplicatesNothingInRandomScenarios) {
  int64_t retractions = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(fmt::format("seed = {}", seed));
    std::mt19937 random(seed);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    SchedulerOptions options;
    options.page_size = 1 << between(0, 4);
    options.num_pages = between(1, 1 + 120 / options.page_size);
    options.needs_state = between(0, 3) != 0;
    options.num_state_slots = options.needs_state ? between(1, 6) : 0;
    options.max_running = static_cast<int32_t>(between(1, 8));
    options.max_step_tokens = between(1, 40);
    options.chunked_prefill_tokens = between(1, 40);
    options.chunk_grid = int64_t{1} << between(0, 4);
    options.max_queued = static_cast<int32_t>(between(1, 20));
    Bench bench(options);
    const int64_t pool_tokens = options.num_pages * options.page_size;
    const int64_t num_sequences = between(1, 14);
    std::set<int64_t> cancelled;

    int64_t steps = 0;
    for (bool busy = true; busy || std::ssize(bench.sequences) < num_sequences; ++steps) {
      ASSERT_LT(steps, 5000) << "does not come to an end";
      while (std::ssize(bench.sequences) < num_sequences && between(0, 2) == 0) {
        const int64_t prompt = between(1, std::min<int64_t>(pool_tokens, 50));
        const int64_t max_new = between(0, std::min<int64_t>(pool_tokens - prompt + 2, 40));
        Sequence& sequence = bench.make(
            prompt, max_new, {static_cast<TokenId>(between(0, 60)), 3, 9}, between(0, max_new));
        const bool fits = sequence.max_stored_tokens() <= pool_tokens;
        const bool room = bench.scheduler.stats().num_queued < options.max_queued;
        ASSERT_EQ(bench.scheduler.submit(sequence).ok(), fits && room);
        if (!fits || !room) {
          ASSERT_EQ(sequence.status, SequenceStatus::kNew);
          bench.scheduler.release(sequence);
          cancelled.insert(sequence.id);
        }
      }
      if (between(0, 9) == 0 && !bench.sequences.empty()) {
        Sequence& victim =
            *bench.sequences[static_cast<size_t>(between(0, std::ssize(bench.sequences) - 1))];
        if (victim.status != SequenceStatus::kFinished) cancelled.insert(victim.id);
        bench.scheduler.release(victim);
      }
      std::map<int64_t, std::pair<int64_t, int32_t>> decoding;  // id -> output, retractions
      for (const auto& sequence : bench.sequences) {
        if (sequence->status == SequenceStatus::kRunning && sequence->decoding()) {
          decoding[sequence->id] = {sequence->num_output_tokens(), sequence->num_retractions};
        }
      }
      busy = bench.step();
      if (!busy) {
        ASSERT_EQ(bench.scheduler.stats().num_waiting + bench.scheduler.stats().num_running, 0);
      }
      for (const auto& [id, before] : decoding) {
        const Sequence& sequence = *bench.sequences[static_cast<size_t>(id)];
        if (sequence.num_retractions > before.second) continue;
        ASSERT_EQ(sequence.num_output_tokens(), before.first + 1) << "a running stream stalled";
      }
    }
    ASSERT_THAT(bench.runner.complaints(), IsEmpty());
    ASSERT_EQ(bench.scheduler.stats().pages_used, 0);
    ASSERT_EQ(bench.scheduler.stats().state_slots_used, 0);
    for (const auto& sequence : bench.sequences) {
      ASSERT_EQ(sequence->status, SequenceStatus::kFinished);
      const std::vector<TokenId> want = expected_output(*sequence);
      if (cancelled.count(sequence->id) == 0) {
        ASSERT_EQ(output_of(*sequence), want);
      } else {
        const auto output = output_of(*sequence);
        ASSERT_LE(output.size(), want.size());
        ASSERT_TRUE(std::equal(output.begin(), output.end(), want.begin()));
      }
    }
    retractions += bench.scheduler.stats().num_retractions;
  }
  EXPECT_GT(retractions, 200) << "the scenarios should reach this path";
}

}  // namespace
}  // namespace heddle::scheduler
