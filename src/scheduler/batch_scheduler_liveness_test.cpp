// SPDX-License-Identifier: Apache-2.0
// Promises of the scheduler under any load: tight pools never stop it and never change an answer,
// no request starves, and streams go on while a long prompt is computed.
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler.h"
#include "scheduler/hybrid_cache_fixture.h"

namespace heddle::scheduler {
namespace {

using request::Sequence;
using request::SequenceStatus;

BatchSchedulerOptions tight(int32_t page_size, int64_t num_pages, int64_t num_slots) {
  BatchSchedulerOptions options;
  options.cache.pools.page_size = page_size;
  options.cache.pools.num_pages = num_pages;
  options.cache.pools.num_state_slots = num_slots;
  options.cache.grid = 8;
  options.cache.decode_interval = 8;
  options.cache.pools.keeps_hidden = num_slots > 0;
  options.cache.pools.page_bytes = page_size;
  options.cache.pools.state_slot_bytes = 20;
  options.cache.pools.flops = testing::kToyFlops;
  options.max_running = 3;
  options.limits.max_tokens = 16;
  options.chunked_prefill_tokens = 11;
  options.scheduling.conservativeness = 0.1;  // admits more than fits
  return options;
}

// Requests that fill the pool to its last row, alone and together, begin alike and repeat.
void fill(HybridCacheFixture& fixture, int64_t pool_tokens) {
  const Tokens stem = repeated(1000, pool_tokens);
  const auto ask = [&](int64_t prompt_tokens, int64_t max_new_tokens, TokenId last) {
    if (prompt_tokens < 1 || prompt_tokens + max_new_tokens - 1 > pool_tokens) return;
    Tokens prompt = first(stem, prompt_tokens);
    prompt.back() = last;
    fixture.submit(prompt, max_new_tokens);
  };
  ask(pool_tokens, 1, 1000);
  ask(1, pool_tokens, 1001);
  ask((pool_tokens + 1) / 2, (pool_tokens + 2) / 2, 1000);
  ask((pool_tokens + 1) / 2, (pool_tokens + 2) / 2, 1002);
  ask(pool_tokens - 1, 2, 1000);
  ask(pool_tokens, 1, 1000);
  ask(pool_tokens / 3, pool_tokens / 2, 1000);
  fixture.run();
}

TEST(BatchSchedulerLivenessTest, PoolsOfEverySizeGiveTheSameAnswers) {
  constexpr int64_t kStride = HEDDLE_SANITIZED ? 5 : 1;
  int64_t retractions = 0;
  for (const int32_t page_size : {1, 4, 8}) {
    for (int64_t pages = 1; pages * page_size <= 40; pages += kStride) {
      for (const int64_t slots : {0, 1, 2, 3, 4, 7}) {
        for (int policy = 0; policy < (slots == 0 ? 1 : 3); ++policy) {
          for (const bool overlap : {false, true}) {
            SCOPED_TRACE(fmt::format("{} pages of {}, {} slots, policy {}, overlap {}", pages,
                                     page_size, slots, policy, overlap));
            BatchSchedulerOptions options = tight(page_size, pages, slots);
            options.cache.policy = static_cast<SnapshotPolicy>(policy);
            options.scheduling.mixed_batches = pages % 2 == 0;
            HybridCacheFixture fixture(options);
            fixture.base.overlap = overlap;
            fill(fixture, pages * page_size);
            ASSERT_FALSE(::testing::Test::HasFailure());
            retractions += fixture.base.scheduler->stats().num_retractions;
            fixture.base.scheduler->clear_cache();
            ASSERT_EQ(fixture.stats().pages_used, 0);
            ASSERT_EQ(fixture.stats().state_slots_used, 0);
          }
        }
      }
    }
  }
  EXPECT_GT(retractions, 100) << "the pools should be tight";
}

// Decoding needs a page, the one that decodes is retracted for a more urgent one whose prompt is
// being computed, and that prompt goes on in the same step.
TEST(BatchSchedulerLivenessTest, APromptGoesOnWhenAllThatDecodeAreRetracted) {
  for (const bool mixed : {false, true}) {
    BatchSchedulerOptions options = tight(/*page_size=*/1, /*num_pages=*/96, /*num_slots=*/0);
    options.scheduling.mixed_batches = mixed;
    options.scheduling.enable_priority = true;
    options.scheduling.preemption = false;
    options.scheduling.prefills_per_decode = 1;
    options.scheduling.conservativeness = 0.001;
    options.limits.max_tokens = 8;
    options.chunked_prefill_tokens = 4;
    HybridCacheFixture fixture(options);
    const auto ask = [&](int64_t prompt, int64_t output, int64_t priority) -> Sequence& {
      Request request;
      request.prompt = fixture.unique(prompt);
      request.stop.max_new_tokens = output;
      request.priority = priority;
      Sequence& sequence = fixture.base.make(std::move(request));
      EXPECT_TRUE(fixture.base.scheduler->submit(sequence).ok());
      return sequence;
    };
    const Sequence& decoding = ask(4, 30, 0);
    ASSERT_TRUE(fixture.base.step());
    ask(80, 4, 9);
    fixture.base.run();
    EXPECT_GE(decoding.num_retractions, 1) << "the pool should be tight";
    EXPECT_THAT(fixture.base.runner.complaints(), ::testing::IsEmpty());
    for (const auto& sequence : fixture.base.sequences) {
      EXPECT_EQ(sequence->status, SequenceStatus::kFinished);
      EXPECT_EQ(SchedulerFixture::output_of(*sequence),
                SchedulerFixture::expected_output(*sequence));
    }
  }
}

// A sequence finds that the page it shares in part leaves it one page short, and starts again
// without the cache. An urgent one interrupts it: what it computed meanwhile is whole pages, and it
// goes on from there.
TEST(BatchSchedulerLivenessTest, ASequenceThatStartedWithoutTheCacheMayUseItAgain) {
  BatchSchedulerOptions options = tight(/*page_size=*/4, /*num_pages=*/10, /*num_slots=*/4);
  options.max_running = 2;
  options.limits.max_tokens = 22;
  options.chunked_prefill_tokens = 20;  // 16 on the grid, and some for the urgent one
  options.scheduling.enable_priority = true;
  options.scheduling.preemption_min_run_seconds = 0;
  HybridCacheFixture fixture(options);
  const Tokens stem = fixture.unique(10);
  fixture.serve(stem, 1);
  // Ten pages, and an eleventh for the tree as long as it starts in the middle of the third.
  const Sequence& sequence = fixture.submit(joined(stem, fixture.unique(22)), 9);
  while (sequence.num_retractions == 0) ASSERT_TRUE(fixture.base.step());
  ASSERT_EQ(sequence.num_computed, 16) << "a chunk of it, from the first token";

  Request request;
  request.prompt = fixture.unique(4);
  request.stop.max_new_tokens = 2;
  request.priority = 100;
  Sequence& urgent = fixture.base.make(std::move(request));
  ASSERT_TRUE(fixture.base.scheduler->submit(urgent).ok());
  while (sequence.num_preemptions == 0) ASSERT_TRUE(fixture.base.step());
  while (sequence.status == SequenceStatus::kWaiting) ASSERT_TRUE(fixture.base.step());
  int64_t resumed_from = -1;
  for (const request::PlannedSequence& planned : fixture.base.last_plan->sequences) {
    if (planned.sequence_id == sequence.id) resumed_from = planned.context_tokens;
  }
  EXPECT_GE(resumed_from, 16);
  fixture.run();
}

// Two batch slots, two tenants that always have requests waiting: their service, in the units of
// the counters, never differs by more than twice the costliest request or the costliest full batch.
TEST(BatchSchedulerLivenessTest, FairTenantsStayWithinTheBound) {
  constexpr int64_t kLongPrompt = 100;
  constexpr int64_t kLongOutput = 40;
  BatchSchedulerOptions options = multi();
  options.scheduling.policy = QueuePolicy::kFair;
  options.max_running = 2;
  options.max_queued = 1000;
  HybridCacheFixture fixture(options);
  const auto ask = [&](const char* tenant, int64_t prompt, int64_t output) {
    Request request;
    request.prompt = fixture.unique(prompt);
    request.stop.max_new_tokens = output;
    request.tenant = tenant;
    ASSERT_TRUE(fixture.base.scheduler->submit(fixture.base.make(std::move(request))).ok());
  };
  // The greedy tenant was first and asks for much; the other for little.
  for (int i = 0; i < 40; ++i) ask("greedy", kLongPrompt, kLongOutput);
  for (int i = 0; i < 200; ++i) ask("modest", 10, 5);
  const double bound = 2 * std::max<double>(kLongPrompt, 2 * 2 * kLongOutput);
  double widest = 0;
  int64_t both_waited = 0;
  while (fixture.base.step()) {
    double served[2] = {0, 0};
    bool waits[2] = {false, false};
    for (const auto& sequence : fixture.base.sequences) {
      const size_t tenant = sequence->request.tenant == "greedy" ? 0 : 1;
      if (sequence->status == SequenceStatus::kWaiting) {
        waits[tenant] = true;
      } else {
        served[tenant] += static_cast<double>(sequence->num_prompt_tokens) +
                          2 * static_cast<double>(sequence->num_output_tokens());
      }
    }
    if (!waits[0] || !waits[1]) continue;
    ++both_waited;
    widest = std::max(widest, std::abs(served[0] - served[1]));
  }
  EXPECT_GT(both_waited, 100);
  EXPECT_LE(widest, bound);
  fixture.run();
}

// Requests of priority 10 keep the one batch slot busy for good; one of priority 0 gains a class
// every 30 seconds and is as urgent as they are, and older, after 300.
TEST(BatchSchedulerLivenessTest, AgingEndsTheWaitOfTheLeastUrgent) {
  BatchSchedulerOptions options = multi();
  options.max_running = 1;
  options.scheduling.enable_priority = true;
  options.scheduling.default_priority = 0;
  options.scheduling.aging_seconds = 30;
  options.max_queued = 10000;
  HybridCacheFixture fixture(options);
  const auto ask = [&](int64_t priority) -> Sequence& {
    Request request;
    request.prompt = fixture.unique(4);
    request.stop.max_new_tokens = 1;
    request.priority = priority;
    Sequence& sequence = fixture.base.make(std::move(request));
    EXPECT_TRUE(fixture.base.scheduler->submit(sequence).ok());
    return sequence;
  };
  const Sequence& low = ask(0);
  double seconds = 0;
  for (; low.status != SequenceStatus::kFinished; ++seconds) {
    ASSERT_LE(seconds, 300) << "starves";
    ask(10);
    ask(10);
    ASSERT_TRUE(fixture.base.step());  // one request
    fixture.base.clock.advance_seconds(1);
  }
  EXPECT_EQ(seconds - 1, 300) << "served in the step at 300 s and in none before";
  fixture.run();
}

// A prompt of thirty chunks arrives while two streams run.
TEST(BatchSchedulerLivenessTest, StreamsGoOnUnderALongPrompt) {
  for (const bool mixed : {true, false}) {
    SCOPED_TRACE(mixed ? "mixed" : "interleaved 1:1");
    BatchSchedulerOptions options = multi();
    options.scheduling.mixed_batches = mixed;
    options.chunked_prefill_tokens = 256;
    options.limits.max_tokens = 256 + 32;
    HybridCacheFixture fixture(options);
    const Sequence& one = fixture.submit(fixture.unique(20), 200);
    const Sequence& two = fixture.submit(fixture.unique(20), 200);
    while (one.num_output_tokens() < 3) ASSERT_TRUE(fixture.base.step());
    const Sequence& large = fixture.submit(fixture.unique(30 * 256), 4);
    int64_t steps = 0;
    int64_t gap = 0;
    int64_t widest = 0;
    int64_t drawn = one.num_output_tokens();
    const int64_t before = drawn;
    for (; large.num_output_tokens() == 0; ++steps) {
      ASSERT_TRUE(fixture.base.step());
      ++gap;
      EXPECT_EQ(one.num_output_tokens(), two.num_output_tokens());
      if (one.num_output_tokens() > drawn) gap = 0;
      widest = std::max(widest, gap);
      drawn = one.num_output_tokens();
    }
    if (mixed) {
      EXPECT_EQ(steps, 30);
      EXPECT_EQ(drawn - before, steps) << "a token in every step";
    } else {
      EXPECT_GE(steps, 2 * 30 - 1);
      EXPECT_LE(steps, 2 * 30);
      EXPECT_EQ(widest, 1) << "never two prefill steps in a row";
    }
    fixture.run();
  }
}

}  // namespace
}  // namespace heddle::scheduler
