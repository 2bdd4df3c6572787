// SPDX-License-Identifier: Apache-2.0
#include "scheduler/batch_scheduler.h"

#include <optional>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler.h"
#include "core/log.h"
#include "scheduler/scheduler_fixture.h"

namespace heddle::scheduler {
namespace {

using request::PlannedSequence;
using request::Sequence;
using request::SequenceStatus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BatchSchedulerOptions without_cache() {
  BatchSchedulerOptions options = roomy();
  options.cache.enabled = false;
  return options;
}

TEST(BatchSchedulerTest, PrefillsThenDecodesOneTokenAStep) {
  SchedulerFixture fixture(without_cache());
  Sequence& sequence = fixture.submit(10, 3);
  ASSERT_TRUE(fixture.step());
  EXPECT_THAT(fixture.planned(), ElementsAre(std::pair(0, 10)));
  ASSERT_EQ(fixture.last_plan->moves.size(), 1U);
  EXPECT_EQ(fixture.last_plan->moves[0].kind, request::MoveKind::kZero);
  EXPECT_EQ(fixture.last_plan->moves[0].to, sequence.state_slot);
  ASSERT_TRUE(fixture.step());
  EXPECT_THAT(fixture.planned(), ElementsAre(std::pair(0, 1)));
  EXPECT_THAT(fixture.last_plan->moves, IsEmpty());
  ASSERT_TRUE(fixture.step());
  EXPECT_FALSE(fixture.step());
  EXPECT_EQ(SchedulerFixture::output_of(sequence), SchedulerFixture::expected_output(sequence));
  EXPECT_EQ(fixture.scheduler->stats().cache.pages_used, 0);
  EXPECT_EQ(fixture.scheduler->stats().cache.state_slots_used, 0);
}

TEST(BatchSchedulerTest, FeedsTokensTheHostHasNotSeenWhileStepsOverlap) {
  SchedulerFixture fixture(without_cache());
  fixture.overlap = true;
  Sequence& sequence = fixture.submit(10, 4);
  ASSERT_TRUE(fixture.step());
  ASSERT_TRUE(fixture.step());
  EXPECT_TRUE(fixture.last_plan->sequences[0].feeds_drawn_token);
  EXPECT_EQ(fixture.last_plan->sequences[0].context_tokens, 10);
  fixture.run();
  EXPECT_EQ(SchedulerFixture::output_of(sequence), SchedulerFixture::expected_output(sequence));
  EXPECT_EQ(fixture.runner.num_steps(), 4);  // the limit is known: no step is wasted
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, CutsLongPromptsOnTheGridWhileRunningStreamsAdvance) {
  BatchSchedulerOptions options = without_cache();
  options.chunked_prefill_tokens = 21;
  SchedulerFixture fixture(options);
  fixture.submit(4, 50);
  ASSERT_TRUE(fixture.step());
  fixture.submit(45, 1);
  fixture.submit(3, 5);
  ASSERT_TRUE(fixture.step());
  EXPECT_THAT(fixture.planned(), ElementsAre(std::pair(0, 1), std::pair(1, 16), std::pair(2, 3)));
  ASSERT_TRUE(fixture.step());
  EXPECT_THAT(fixture.planned(), ElementsAre(std::pair(0, 1), std::pair(2, 1), std::pair(1, 16)));
  ASSERT_TRUE(fixture.step());
  EXPECT_THAT(fixture.planned(), ElementsAre(std::pair(0, 1), std::pair(2, 1), std::pair(1, 13)));
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, PromptsThatAreScoredLeaveTheChunkToOthers) {
  for (const int64_t rows : {8, 12}) {  // no row is left for the second; too few for the grid of 8
    SCOPED_TRACE(fmt::format("{} rows", rows));
    BatchSchedulerOptions options = without_cache();
    options.chunked_prefill_tokens = 64;
    options.limits.max_scored_rows = rows;
    SchedulerFixture fixture(options);
    for (const int64_t num_tokens : {30, 20}) {
      Request request;
      request.prompt = fixture.unique_prompt(num_tokens);
      request.stop.max_new_tokens = 1;
      request.prompt_logprobs = {.from = 0, .top = 0};
      ASSERT_TRUE(fixture.scheduler->submit(fixture.make(std::move(request))).ok());
    }
    fixture.submit(100, 1);
    ASSERT_TRUE(fixture.step());
    EXPECT_THAT(fixture.planned(), ElementsAre(std::pair(0, 8), std::pair(2, 56)))
        << "the second is passed by, the third is cut by the chunk alone";
    ASSERT_TRUE(fixture.step());
    EXPECT_THAT(fixture.planned(), ElementsAre(std::pair(0, 8), std::pair(2, 44)));
    fixture.run();
    EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
    for (const auto& sequence : fixture.sequences) EXPECT_FALSE(sequence->wants_scores());
  }
}

TEST(BatchSchedulerTest, TakesPagesAndSlotTogetherOrNotAtAll) {
  BatchSchedulerOptions options = without_cache();
  options.cache.pools.num_state_slots = 2;
  SchedulerFixture fixture(options);
  for (int i = 0; i < 3; ++i) fixture.submit(4, 4);
  ASSERT_TRUE(fixture.step());
  EXPECT_EQ(fixture.scheduler->stats().num_running, 2);
  EXPECT_EQ(fixture.scheduler->stats().num_waiting, 1);
  EXPECT_TRUE(fixture.sequences[2]->pages.empty());
  EXPECT_EQ(fixture.scheduler->stats().cache.pages_used, 2);
}

TEST(BatchSchedulerTest, RetractsWhenPagesRunOutAndLosesNothing) {
  BatchSchedulerOptions options = without_cache();
  options.cache.pools.num_pages = 16;
  options.scheduling.conservativeness = 0.01;  // admits all four, which need 20 in the end
  SchedulerFixture fixture(options);
  for (int i = 0; i < 4; ++i) fixture.submit(4, 15);
  fixture.run();
  EXPECT_EQ(fixture.scheduler->stats().num_retractions, 1)
      << "none left in between, so none may be admitted";
  EXPECT_EQ(fixture.scheduler->stats().retracted_input_tokens, 4);
  EXPECT_GT(fixture.scheduler->stats().retracted_output_tokens, 0);
  EXPECT_LT(fixture.scheduler->stats().retracted_output_tokens, 15);
  EXPECT_EQ(fixture.scheduler->stats().preempted_tokens, 0);
  for (const auto& sequence : fixture.sequences) {
    EXPECT_EQ(SchedulerFixture::output_of(*sequence), SchedulerFixture::expected_output(*sequence));
  }
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, ARetractedSequenceGoesOnWhereItWas) {
  BatchSchedulerOptions options = roomy();
  options.cache.pools.num_pages = 27;
  options.scheduling.conservativeness = 0.01;
  SchedulerFixture fixture(options);
  fixture.submit(30, 40);
  fixture.submit(30, 40);
  fixture.run();
  EXPECT_GE(fixture.scheduler->stats().num_retractions, 1);
  for (const auto& sequence : fixture.sequences) {
    EXPECT_EQ(SchedulerFixture::output_of(*sequence), SchedulerFixture::expected_output(*sequence));
  }
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, ATextThatOutgrowsItsRotaryTableIsComputedAgainAndSharesOnlyWithItsTable) {
  for (const bool overlap : {false, true}) {
    BatchSchedulerOptions options = roomy();
    options.cache.pools.num_state_slots = 0;
    options.cache.pools.keeps_hidden = false;
    options.limits.short_rope_tokens = 32;
    SchedulerFixture fixture(options);
    fixture.overlap = overlap;
    const Sequence& grown = fixture.submit(20, 30);
    // 32 tokens are computed, because the last drawn token is not.
    const Sequence& within = fixture.submit(20, 13);
    fixture.run();
    EXPECT_TRUE(grown.takes_long_rope);
    EXPECT_FALSE(within.takes_long_rope);
    EXPECT_EQ(fixture.scheduler->stats().num_retractions, 0);
    const std::vector<TokenId> text = grown.tokens;
    const auto reused = [&](int64_t num_tokens, const char* name_space = "") {
      Request request;
      request.prompt.assign(text.begin(), text.begin() + num_tokens);
      request.cache_namespace = name_space;
      request.stop.max_new_tokens = 1;
      Sequence& sequence = fixture.make(std::move(request));
      EXPECT_TRUE(fixture.scheduler->submit(sequence).ok());
      fixture.run();
      return sequence.cache_report.reused_tokens;
    };
    EXPECT_EQ(reused(32), 28) << "what was computed before it had grown";
    EXPECT_EQ(reused(33), 32);
    EXPECT_EQ(reused(48), 44) << "and after";
    EXPECT_EQ(reused(32, "\x1fl"), 0) << "a namespace that looks like the one of long texts";
    EXPECT_EQ(reused(33, "\x1fl"), 0);
    for (const auto& sequence : fixture.sequences) {
      EXPECT_EQ(SchedulerFixture::output_of(*sequence),
                SchedulerFixture::expected_output(*sequence));
    }
    EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
  }
}

// Stored lengths 64, 100, 128 and 129 in pages of 64 need two more.
TEST(BatchSchedulerTest, ADecodeStepTakesAPageWhereTheLastOneIsFull) {
  BatchSchedulerOptions options = without_cache();
  options.cache.pools.page_size = 64;
  options.cache.grid = 64;
  options.cache.decode_interval = 64;
  options.limits.max_tokens = options.chunked_prefill_tokens = 512;
  SchedulerFixture fixture(options);
  for (const int64_t length : {64, 100, 128, 129}) fixture.submit(length, 8);
  ASSERT_TRUE(fixture.step());
  const int64_t before = fixture.scheduler->stats().cache.pages_used;
  ASSERT_TRUE(fixture.step());
  EXPECT_EQ(fixture.scheduler->stats().cache.pages_used - before, 2);
}

TEST(BatchSchedulerTest, ReportsThoseWhoseTimeIsUp) {
  BatchSchedulerOptions options = without_cache();
  options.max_running = 1;
  options.scheduling.queue_timeout_seconds = 5;
  options.scheduling.running_timeout_seconds = 20;
  SchedulerFixture fixture(options);
  Sequence& running = fixture.submit(4, 100);
  Sequence& waiting = fixture.submit(4, 100);
  Request request;
  request.prompt = fixture.unique_prompt(4);
  request.deadline_seconds = 2;
  Sequence& hasty = fixture.make(std::move(request));
  ASSERT_TRUE(fixture.scheduler->submit(hasty).ok());
  Request late;  // its caller arrived 1.5 s ago
  late.prompt = fixture.unique_prompt(4);
  late.deadline_seconds = 3;
  late.waited_seconds = 1.5;
  Sequence& delayed = fixture.make(std::move(late));
  ASSERT_TRUE(fixture.scheduler->submit(delayed).ok());
  ASSERT_TRUE(fixture.step());
  running.timings.first_step_seconds = fixture.clock.now_seconds();
  const auto dropped = [&](double seconds) {
    fixture.clock.advance_seconds(seconds);
    std::vector<Dropped> all;
    fixture.scheduler->take_dropped(all);
    std::vector<std::pair<Sequence*, std::string>> named;
    for (const Dropped& drop : all) {
      const std::string& message = drop.reason.message();
      named.emplace_back(drop.sequence, message.substr(0, message.find(':')));
      fixture.scheduler->release(*drop.sequence, Ending::kAborted);
    }
    return named;
  };
  EXPECT_THAT(dropped(1.4), IsEmpty());
  EXPECT_THAT(dropped(0.2), ElementsAre(std::pair(&delayed, "deadline_exceeded")));
  EXPECT_THAT(dropped(0.3), IsEmpty());
  EXPECT_THAT(dropped(0.2), ElementsAre(std::pair(&hasty, "deadline_exceeded")));
  EXPECT_THAT(dropped(3), ElementsAre(std::pair(&waiting, "queue_timeout")));
  EXPECT_THAT(dropped(10), IsEmpty());
  EXPECT_THAT(dropped(5), ElementsAre(std::pair(&running, "running_timeout")));
  EXPECT_FALSE(fixture.step());
}

TEST(BatchSchedulerTest, RefusesWhatCanNeverFit) {
  BatchSchedulerOptions options = without_cache();
  options.cache.pools.num_pages = 10;
  SchedulerFixture fixture(options);
  EXPECT_TRUE(fixture.scheduler->check_fits(fixture.make(fixture.unique_prompt(40), 1)).ok());
  EXPECT_TRUE(fixture.scheduler->check_fits(fixture.make(fixture.unique_prompt(40), 0)).ok());
  const Status status = fixture.scheduler->check_fits(fixture.make(fixture.unique_prompt(30), 12));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      status.message(),
      HasSubstr("needs room for 41 tokens (30 in the prompt, max_new_tokens = 12), but the KV "
                "pool holds 40"));
  EXPECT_FALSE(fixture.step());
}

TEST(BatchSchedulerTest, ComputesPromptsThatWantNoOutputWithoutDrawing) {
  SchedulerFixture fixture(without_cache());
  Sequence& sequence = fixture.submit(300, 0);
  ASSERT_TRUE(fixture.step());
  EXPECT_FALSE(fixture.last_plan->sequences[0].sample);
  ASSERT_TRUE(fixture.step());
  EXPECT_FALSE(fixture.last_plan->sequences[0].sample);
  EXPECT_FALSE(fixture.step());
  EXPECT_EQ(sequence.status, SequenceStatus::kFinished);
}

TEST(BatchSchedulerTest, ASequenceReleasedUnderARunningStepOwnsItsPagesUntilTheStepIsComplete) {
  SchedulerFixture fixture(without_cache());
  fixture.overlap = true;
  Sequence& gone = fixture.submit(4, 5);
  ASSERT_TRUE(fixture.step());
  fixture.scheduler->release(gone, Ending::kAborted);
  EXPECT_EQ(gone.status, SequenceStatus::kEnding);
  EXPECT_EQ(fixture.scheduler->stats().cache.pages_used, 1);
  fixture.run();
  EXPECT_EQ(gone.status, SequenceStatus::kFinished);
  EXPECT_EQ(gone.num_output_tokens(), 0);
  EXPECT_EQ(fixture.scheduler->stats().cache.pages_used, 0);
}

TEST(BatchSchedulerTest, AnIdenticalPromptComputesNothing) {
  for (const bool overlap : {false, true}) {
    SchedulerFixture fixture(roomy());
    fixture.overlap = overlap;
    const std::vector<TokenId> prompt = fixture.unique_prompt(45);
    EXPECT_EQ(fixture.ask(prompt, 6), 0);
    const Sequence& again = fixture.submit(prompt, 6);
    fixture.run();
    EXPECT_EQ(again.cache_report.reused_tokens, 45);
    EXPECT_TRUE(again.cache_report.exact_repeat);
    EXPECT_EQ(SchedulerFixture::output_of(again), SchedulerFixture::expected_output(again));
    EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
  }
}

TEST(BatchSchedulerTest, AFinishedTurnIsExtendedFromItsLastToken) {
  SchedulerFixture fixture(roomy());
  std::vector<TokenId> chat = fixture.unique_prompt(45);
  fixture.ask(chat, 6);
  chat = fixture.sequences.back()->tokens;  // 45 + 6, of which the last was never computed
  for (int i = 0; i < 10; ++i) chat.push_back(i);
  EXPECT_EQ(fixture.ask(chat, 6), 50);
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, FourThatShareAPrefixComputeItOnce) {
  BatchSchedulerOptions options = roomy();
  options.chunked_prefill_tokens = 256;
  SchedulerFixture fixture(options);
  std::vector<TokenId> stem = fixture.unique_prompt(600);
  for (int i = 0; i < 4; ++i) {
    std::vector<TokenId> prompt = stem;
    for (int k = 0; k < 40; ++k) prompt.push_back(100 + 17 * i + k);
    fixture.submit(prompt, 4);
  }
  fixture.run();
  int64_t reused = 0;
  for (const auto& sequence : fixture.sequences) reused += sequence->cache_report.reused_tokens;
  EXPECT_EQ(reused, 3 * 600);
  EXPECT_EQ(fixture.scheduler->stats().deferred_sequences, 3);
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, ASequenceReleasedWithTwoStepsInFlightCountsWhatTheyComputed) {
  SchedulerFixture fixture(roomy());
  fixture.overlap = true;
  Sequence& gone = fixture.submit(14, 30);
  ASSERT_TRUE(fixture.step());
  ASSERT_TRUE(fixture.step());
  ASSERT_TRUE(fixture.step());  // the decode snapshot at 16 tokens is in flight
  fixture.scheduler->release(gone, Ending::kDone);
  fixture.run();
  EXPECT_EQ(gone.status, SequenceStatus::kFinished);
  const std::vector<TokenId> tokens = gone.tokens;
  EXPECT_GE(fixture.ask(tokens, 3), 14);
  EXPECT_EQ(SchedulerFixture::output_of(*fixture.sequences.back()),
            SchedulerFixture::expected_output(*fixture.sequences.back()));
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, TheUrgentDoNotWaitForOthersAfterARetraction) {
  BatchSchedulerOptions options = without_cache();
  options.cache.pools.num_pages = 16;
  options.scheduling.conservativeness = 0.01;
  options.scheduling.enable_priority = true;
  options.scheduling.default_priority = 0;
  SchedulerFixture fixture(options);
  for (int i = 0; i < 4; ++i) fixture.submit(4, 15);
  while (fixture.scheduler->stats().num_retractions == 0) ASSERT_TRUE(fixture.step());
  Request request;
  request.prompt = fixture.unique_prompt(4);
  request.stop.max_new_tokens = 1;
  request.priority = 50;
  fixture.clock.advance_seconds(1);
  Sequence& urgent = fixture.make(std::move(request));
  ASSERT_TRUE(fixture.scheduler->submit(urgent).ok());
  ASSERT_TRUE(fixture.step());
  ASSERT_TRUE(fixture.step());  // what the preempted one held is there
  EXPECT_NE(urgent.status, SequenceStatus::kWaiting);
  fixture.run();
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

TEST(BatchSchedulerTest, UrgentRequestsTakeTheBatchSlotOfOthersWhichGoOnLater) {
  BatchSchedulerOptions options = roomy();
  options.max_running = 1;
  options.scheduling.enable_priority = true;
  options.scheduling.default_priority = 0;
  SchedulerFixture fixture(options);
  Sequence& patient = fixture.submit(30, 40);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(fixture.step());
  fixture.clock.advance_seconds(1);
  Request request;
  request.prompt = fixture.unique_prompt(20);
  request.stop.max_new_tokens = 3;
  request.priority = 100;
  Sequence& urgent = fixture.make(std::move(request));
  ASSERT_TRUE(fixture.scheduler->submit(urgent).ok());
  ASSERT_TRUE(fixture.step());
  ASSERT_TRUE(fixture.step());
  EXPECT_EQ(patient.status, SequenceStatus::kWaiting);
  EXPECT_EQ(urgent.status, SequenceStatus::kRunning);
  fixture.run();
  EXPECT_EQ(patient.num_preemptions, 1);
  EXPECT_EQ(fixture.scheduler->stats().preempted_tokens, 30 + 5) << "of the six steps it ran";
  EXPECT_EQ(fixture.scheduler->stats().retracted_input_tokens, 0);
  EXPECT_EQ(SchedulerFixture::output_of(patient), SchedulerFixture::expected_output(patient));
  EXPECT_EQ(SchedulerFixture::output_of(urgent), SchedulerFixture::expected_output(urgent));
  EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
}

// A sequence that goes back to the queue for a pause is not counted: nothing is short.
TEST(BatchSchedulerTest, APauseIsNotARetraction) {
  SchedulerFixture fixture(roomy());
  const Sequence& sequence = fixture.submit(40, 10);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(fixture.step());
  fixture.scheduler->retract_all();
  EXPECT_EQ(sequence.status, SequenceStatus::kWaiting);
  EXPECT_TRUE(sequence.pages.empty());
  EXPECT_EQ(fixture.scheduler->stats().num_open_slots, 0)
      << "the one that was here before takes a batch slot first";
  fixture.run();
  EXPECT_EQ(sequence.num_retractions, 0);
  EXPECT_EQ(fixture.scheduler->stats().num_retractions, 0);
  EXPECT_EQ(fixture.scheduler->stats().retracted_input_tokens, 0);
  EXPECT_EQ(SchedulerFixture::output_of(sequence), SchedulerFixture::expected_output(sequence));
}

TEST(BatchSchedulerTest, HeldArrivalsWaitUntilTheyAreLetGo) {
  BatchSchedulerOptions options = roomy();
  options.max_running = 1;
  options.max_queued = 2;
  options.scheduling.queue_timeout_seconds = 5;
  options.scheduling.enable_priority = true;
  options.scheduling.default_priority = 0;
  SchedulerFixture fixture(options);
  Sequence& running = fixture.submit(10, 5);
  ASSERT_TRUE(fixture.step());
  Sequence& waiting = fixture.submit(10, 5);
  fixture.scheduler->defer_arrivals(true);
  Request request;
  request.prompt = fixture.unique_prompt(10);
  request.stop.max_new_tokens = 5;
  request.priority = 100;
  Sequence& held = fixture.make(std::move(request));
  ASSERT_TRUE(fixture.scheduler->submit(held).ok());
  fixture.scheduler->defer_arrivals(true);  // once more: it stays deferred
  fixture.run();
  EXPECT_EQ(running.status, SequenceStatus::kFinished);
  EXPECT_EQ(waiting.status, SequenceStatus::kFinished);
  EXPECT_EQ(held.status, SequenceStatus::kWaiting) << "however urgent";
  const SchedulerStats stats = fixture.scheduler->stats();
  EXPECT_EQ(stats.num_deferred_arrivals, 1);
  EXPECT_EQ(stats.num_waiting, 1);
  EXPECT_EQ(stats.num_open_slots, 0) << "what comes now waits";
  fixture.clock.advance_seconds(6);
  std::vector<Dropped> dropped;
  fixture.scheduler->take_dropped(dropped);
  ASSERT_EQ(dropped.size(), 1u) << "its time runs all the same";
  EXPECT_EQ(dropped[0].sequence, &held);
  fixture.scheduler->defer_arrivals(false);
  EXPECT_EQ(fixture.scheduler->stats().num_deferred_arrivals, 0);
  fixture.run();
  EXPECT_EQ(SchedulerFixture::output_of(held), SchedulerFixture::expected_output(held));
}

// Random pools, policies, arrivals, lengths, stop ids, cancellations and holds, over few stems so
// that prefixes, forks and repeats are frequent. Every sequence that was not cancelled gets exactly
// the tokens it would get alone; at the end the pools hold what the tree owns and nothing else.
TEST(BatchSchedulerTest, LosesAndDuplicatesNothingInRandomScenarios) {
  set_log_level(LogLevel::kOff);  // policies that want the cache run without it, too
  int64_t retractions = 0;
  int64_t preemptions = 0;
  int64_t reused = 0;
  int64_t repeats = 0;
  int64_t outgrown = 0;
  int64_t num_deferred_arrivals = 0;
  constexpr unsigned kScenarios = HEDDLE_SANITIZED ? 600 : 6000;
  for (unsigned seed = 0; seed < kScenarios; ++seed) {
    SCOPED_TRACE(fmt::format("seed = {}", seed));
    std::mt19937 random(seed);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    BatchSchedulerOptions options = roomy();
    cache::PrefixCacheOptions& cache = options.cache;
    cache.pools.page_size = 1 << between(0, 3);
    cache.pools.num_pages = between(1, 1 + 160 / cache.pools.page_size);
    cache.pools.num_state_slots = between(0, 4) != 0 ? between(1, 24) : 0;
    cache.eviction = between(0, 1) == 0 ? EvictionPolicy::kLru : EvictionPolicy::kFlops;
    cache.enabled = between(0, 5) != 0;
    cache.policy = static_cast<SnapshotPolicy>(between(0, 2));
    cache.pools.keeps_hidden = cache.pools.has_states() && between(0, 1) == 0;
    cache.pools.page_bytes = between(1, 5) * cache.pools.page_size;
    cache.pools.state_slot_bytes = between(1, 100);
    cache.pools.snapshot_slot_bytes = cache.pools.state_slot_bytes;
    if (cache.pools.has_states() && between(0, 2) == 0) {  // snapshots have slots of their own
      cache.pools.num_snapshot_slots = between(1, 24);
      cache.pools.state_slot_bytes += between(0, 100);
    }
    if (between(0, 2) == 0) {  // pages and states share memory
      cache.pools.shared_bytes = cache.pools.page_bytes * cache.pools.num_pages +
                                 (cache.pools.has_states() ? cache.pools.state_slot_bytes : 0);
      cache.pools.num_state_slots *= 3;
      cache.pools.num_snapshot_slots *= 3;
    }
    options.max_running = static_cast<int32_t>(between(1, 8));
    options.limits.max_tokens = between(1, 60);
    options.chunked_prefill_tokens = between(1, 60);
    if (between(0, 3) == 0) options.limits.short_rope_tokens = between(1, 70);
    options.max_queued = static_cast<int32_t>(between(1, 20));
    options.scheduling.mixed_batches = between(0, 2) != 0;
    options.scheduling.prefills_per_decode = static_cast<int32_t>(between(0, 2));
    options.scheduling.enable_priority = between(0, 2) == 0;
    options.scheduling.default_priority = 0;
    options.scheduling.preemption_min_run_seconds = 0;
    if (!options.scheduling.enable_priority) {
      constexpr QueuePolicy kPolicies[] = {
          QueuePolicy::kFcfs,   QueuePolicy::kLpm,  QueuePolicy::kDfsWeight,  QueuePolicy::kLof,
          QueuePolicy::kRandom, QueuePolicy::kHrrn, QueuePolicy::kRoutingKey, QueuePolicy::kFair};
      options.scheduling.policy = kPolicies[between(0, 7)];
    }
    SchedulerFixture fixture(options);
    fixture.overlap = between(0, 1) == 0;
    fixture.runner.lazy = between(0, 1) == 0;
    const int64_t pool_tokens = cache.pools.num_pages * cache.pools.page_size;
    const int64_t num_sequences = between(1, 14);
    std::set<int64_t> cancelled;
    std::vector<std::vector<TokenId>> stems;
    for (int i = 0; i < 2; ++i) {
      stems.emplace_back();
      for (int k = 0; k < 70; ++k) stems.back().push_back(static_cast<TokenId>(between(0, 2)));
    }

    int64_t steps = 0;
    std::optional<int64_t> deferred_after;  // an id
    for (bool busy = true; busy || std::ssize(fixture.sequences) < num_sequences; ++steps) {
      ASSERT_LT(steps, 5000) << "does not come to an end";
      while (std::ssize(fixture.sequences) < num_sequences && between(0, 2) == 0) {
        Request request;
        const int64_t length = between(1, std::min<int64_t>(pool_tokens, 60));
        const int64_t earlier = between(0, std::ssize(fixture.sequences));
        if (between(0, 2) == 0 && earlier < std::ssize(fixture.sequences)) {
          const Sequence& other = *fixture.sequences[static_cast<size_t>(earlier)];
          request.prompt = other.tokens;  // another turn, or the same once more
          if (between(0, 1) == 0)
            request.prompt.resize(static_cast<size_t>(other.num_prompt_tokens));
        } else {
          request.prompt = stems[static_cast<size_t>(between(0, 1))];
        }
        if (std::ssize(request.prompt) > length) request.prompt.resize(static_cast<size_t>(length));
        if (between(0, 3) != 0) request.prompt.back() = static_cast<TokenId>(between(0, 9));
        const int64_t max_new =
            between(0, std::min<int64_t>(pool_tokens - std::ssize(request.prompt) + 2, 40));
        request.stop.max_new_tokens = max_new;
        request.stop.min_new_tokens = between(0, max_new);
        request.stop.token_ids = {static_cast<TokenId>(between(0, 60)), 3, 9};
        request.cache_namespace = between(0, 9) == 0 ? "other" : "";
        request.tenant = fmt::format("{}", between(0, 2));
        request.routing_key = fmt::format("{}", between(0, 2));
        if (between(0, 1) == 0) request.priority = between(-30, 30);
        if (between(0, 1) == 0) request.role_boundaries = {between(1, 20), between(21, 50)};
        Sequence& sequence = fixture.make(std::move(request));
        const bool fits = sequence.max_stored_tokens() <= pool_tokens;
        const bool room = fixture.scheduler->stats().num_queued <
                          options.max_queued + fixture.scheduler->stats().num_open_slots;
        const bool accepted = fits && fixture.scheduler->submit(sequence).ok();
        if (!options.scheduling.enable_priority) {
          ASSERT_EQ(accepted, fits && room);
        }
        if (!accepted) {
          ASSERT_EQ(sequence.status, SequenceStatus::kNew);
          fixture.scheduler->release(sequence, Ending::kAborted);
          cancelled.insert(sequence.id);
        }
        std::vector<Dropped> dropped;
        fixture.scheduler->take_dropped(dropped);
        for (const Dropped& drop : dropped) cancelled.insert(drop.sequence->id);
      }
      if (between(0, 9) == 0 && !fixture.sequences.empty()) {
        Sequence& victim =
            *fixture.sequences[static_cast<size_t>(between(0, std::ssize(fixture.sequences) - 1))];
        if (victim.status != SequenceStatus::kFinished &&
            victim.status != SequenceStatus::kEnding) {
          cancelled.insert(victim.id);
        }
        fixture.scheduler->release(victim, Ending::kAborted);
      }
      if (between(0, 19) == 0) fixture.scheduler->clear_cache();
      if (!deferred_after && between(0, 14) == 0) {
        deferred_after = std::ssize(fixture.sequences) - 1;
        fixture.scheduler->defer_arrivals(true);
      }
      fixture.clock.advance_seconds(0.01);
      busy = fixture.step();
      if (deferred_after && fixture.last_plan != nullptr) {
        for (const PlannedSequence& planned : fixture.last_plan->sequences) {
          ASSERT_LE(planned.sequence_id, *deferred_after);
        }
      }
      if (!busy) {
        const SchedulerStats stats = fixture.scheduler->stats();
        ASSERT_EQ(stats.num_running, 0);
        ASSERT_EQ(stats.num_waiting, stats.num_deferred_arrivals);
        num_deferred_arrivals += stats.num_deferred_arrivals;
        busy = deferred_after.has_value();
        deferred_after.reset();
        fixture.scheduler->defer_arrivals(false);
      }
      ASSERT_THAT(fixture.runner.complaints(), IsEmpty());
    }
    fixture.scheduler->check_invariants();
    fixture.scheduler->clear_cache();
    ASSERT_EQ(fixture.scheduler->stats().cache.pages_used, 0);
    ASSERT_EQ(fixture.scheduler->stats().cache.state_slots_used, 0);
    for (const auto& sequence : fixture.sequences) {
      ASSERT_EQ(sequence->status, SequenceStatus::kFinished);
      const std::vector<TokenId> want = SchedulerFixture::expected_output(*sequence);
      const std::vector<TokenId> output = SchedulerFixture::output_of(*sequence);
      if (!cancelled.contains(sequence->id)) {
        ASSERT_EQ(output, want);
      } else {
        ASSERT_LE(output.size(), want.size());
        ASSERT_TRUE(std::equal(output.begin(), output.end(), want.begin()));
      }
      reused += sequence->cache_report.reused_tokens;
      repeats += sequence->cache_report.exact_repeat ? 1 : 0;
      outgrown += sequence->takes_long_rope &&
                  sequence->num_prompt_tokens <= options.limits.short_rope_tokens;
    }
    retractions += fixture.scheduler->stats().num_retractions;
    preemptions += fixture.scheduler->stats().num_preemptions;
  }
  EXPECT_GT(retractions, kScenarios / 30) << "the scenarios should reach this path";
  EXPECT_GT(preemptions, kScenarios / 60);
  EXPECT_GT(reused, 3 * kScenarios);
  EXPECT_GT(repeats, kScenarios / 1000);
  EXPECT_GT(num_deferred_arrivals, kScenarios / 30);
  EXPECT_GT(outgrown, kScenarios / 30);
}

// A step of prompts alone counts the streams that will decode beside them.
TEST(BatchSchedulerDraftsTest, NothingIsMadeBehindPromptsForMoreStreamsThanAreServed) {
  for (const int64_t num_streams : {3, 4}) {
    BatchSchedulerOptions options = roomy();
    options.scheduling.mixed_batches = false;
    options.adapts_drafts = false;
    options.max_drafts = 3;
    options.limits.max_made_drafts = 3;
    options.limits.max_draft_rows = 8;  // of four streams
    SchedulerFixture fixture(options);
    for (int64_t i = 0; i < num_streams; ++i) fixture.submit(8, 100);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(fixture.step());
    const Sequence& last = fixture.submit(8, 100);
    std::optional<int32_t> wanted;
    for (int i = 0; i < 20 && !wanted; ++i) {
      ASSERT_TRUE(fixture.step());
      for (const auto& planned : fixture.last_plan->sequences) {
        if (planned.sequence_id == last.id) wanted = planned.wanted_drafts;
      }
    }
    EXPECT_EQ(wanted, num_streams == 3 ? 3 : 0) << num_streams << " streams";
  }
}

}  // namespace
}  // namespace heddle::scheduler
