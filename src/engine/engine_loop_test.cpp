// SPDX-License-Identifier: Apache-2.0
// The loop under a manual clock, step by step.
#include "engine/engine_loop.h"

#include <map>
#include <new>
#include <random>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler.h"
#include "engine/engine_fixture.h"
#include "engine/scheduler_setup.h"

namespace heddle::engine {
namespace {

using ::heddle::testing::FakeRunner;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<TokenId> hash_output(std::vector<TokenId> tokens, int64_t count) {
  std::vector<TokenId> output;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(FakeRunner::next_token(tokens));
    output.push_back(tokens.back());
  }
  return output;
}

TEST(EngineLoopTest, StreamsATokenPerEventUntilTheLengthIsReached) {
  EngineFixture fixture;
  const Request request = EngineFixture::request("one", 5, 3);
  const Received received = fixture.run(request);
  EXPECT_EQ(received.num_events, 3);
  EXPECT_EQ(received.tokens, hash_output(request.prompt, 3));
  EXPECT_EQ(received.reason(), FinishReason::kLength);
  EXPECT_EQ(received.last.prompt_tokens, 5);
  EXPECT_EQ(received.last.completion_tokens, 3);
  EXPECT_EQ(received.last.cached_tokens, 0);
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
}

TEST(EngineLoopTest, ComputesThePromptAndEndsWhenNoTokensAreWanted) {
  EngineFixture fixture;
  const Received received = fixture.run(EngineFixture::request("one", 100, 0));
  EXPECT_EQ(received.num_events, 1);
  EXPECT_THAT(received.tokens, IsEmpty());
  EXPECT_EQ(received.reason(), FinishReason::kLength);
  EXPECT_EQ(fixture.runner->num_steps(), 4);  // chunks of 32 and 4
}

TEST(EngineLoopTest, UsesTheContextToTheLastTokenAndRefusesMore) {
  EngineFixture fixture;
  EXPECT_EQ(std::ssize(fixture.run(EngineFixture::request("one", 500, 12)).tokens), 12);
  Received received;
  const Status status = fixture.submit(EngineFixture::request("one", 500, 13), received);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("maximum context length is 512 tokens"));
  EXPECT_EQ(received.num_events, 0);
}

TEST(EngineLoopTest, LowersTheContextToWhatTheKvPoolHolds) {
  EngineFixture fixture(
      {.sizes = {.num_pages = 10, .page_size = 4, .num_state_slots = 1, .max_sequences = 1},
       .limits = {.max_tokens = 64}});
  EXPECT_EQ(fixture.engine->model_info().context_length, 40);
  EXPECT_EQ(std::ssize(fixture.run(EngineFixture::request("one", 30, 10)).tokens), 10);
}

TEST(EngineLoopTest, DeliversLogprobs) {
  EngineFixture fixture;
  Request request = EngineFixture::request("one", 3, 2);
  request.return_logprobs = true;
  request.top_logprobs = 3;
  const Received received = fixture.run(request);
  ASSERT_EQ(received.logprobs.size(), 2u);
  EXPECT_EQ(received.logprobs[1].token, received.tokens[1]);
  EXPECT_EQ(received.logprobs[1].top.size(), 3u);
  EXPECT_THAT(fixture.run(EngineFixture::request("one", 3, 2)).logprobs, IsEmpty());
}

TEST(EngineLoopTest, WorksWithoutATokenizerOnTokensAlone) {
  EngineFixture fixture({.tokenizer = false});
  EXPECT_EQ(fixture.engine->tokenizer(), nullptr);
  EXPECT_THAT(fixture.engine->encode("a").status().message(), HasSubstr("skip_tokenizer"));
  const Received received = fixture.run(EngineFixture::request("one", 3, 4));
  EXPECT_EQ(std::ssize(received.tokens), 4);
  EXPECT_EQ(received.text, "");
  Request request = EngineFixture::request("two");
  request.stop.texts = {"x"};
  Received unused;
  EXPECT_THAT(fixture.submit(request, unused).message(), HasSubstr("need a tokenizer"));
}

TEST(EngineLoopTest, CancelsInTheInboxInTheQueueAndWhileRunning) {
  EngineFixture fixture(
      {.sizes = {.num_pages = 64, .page_size = 4, .num_state_slots = 1, .max_sequences = 1},
       .limits = {.max_tokens = 64}});
  Received running, queued, in_inbox;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("running", 3, 100), running).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("queued", 3, 100), queued).ok());
  fixture.engine->step();
  ASSERT_TRUE(fixture.submit(EngineFixture::request("in inbox", 3, 100), in_inbox).ok());
  fixture.engine->cancel("in inbox");
  fixture.engine->cancel("queued");
  fixture.engine->cancel("queued");
  fixture.engine->cancel("nobody");
  EXPECT_TRUE(fixture.engine->step());
  EXPECT_EQ(in_inbox.reason(), FinishReason::kAbort);
  EXPECT_EQ(queued.reason(), FinishReason::kAbort);
  EXPECT_EQ(std::ssize(running.tokens), 2);
  fixture.engine->cancel("running");
  EXPECT_FALSE(fixture.engine->step());
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_EQ(std::ssize(running.tokens), 2);
  fixture.engine->cancel("running");
  EXPECT_FALSE(fixture.engine->step());
  EXPECT_EQ(running.num_finishes, 1);
  EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0);
}

TEST(EngineLoopTest, AFailedDrawEndsItsOwnRequestOnly) {
  EngineFixture fixture;
  fixture.runner->sequence_error = [](const request::PlannedSequence& sequence, int64_t num_drawn) {
    return sequence.sequence_id == 1 && num_drawn == 2
               ? internal_error("numerical error: a logit is not a number")
               : Status();
  };
  Received failing, other;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("failing", 3, 5), failing).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("other", 3, 5), other).ok());
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(failing.reason(), FinishReason::kError);
  EXPECT_THAT(failing.finish->error.message(), HasSubstr("numerical error"));
  EXPECT_EQ(std::ssize(failing.tokens), 2);
  EXPECT_EQ(std::ssize(other.tokens), 5);
  EXPECT_TRUE(fixture.engine->health().ok());
}

TEST(EngineLoopTest, AFailedStepEndsEveryRequestAndTheEngineSaysWhy) {
  const auto bad_steps = std::vector<std::function<Status(const request::BatchPlan&)>>{
      [](const request::BatchPlan&) { return device_lost("the device is gone"); },
      [](const request::BatchPlan&) -> Status { throw std::runtime_error("the device is gone"); },
      [](const request::BatchPlan&) -> Status { throw std::bad_alloc(); },
  };
  for (const auto& bad_step : bad_steps) {
    int num_failures = 0;
    EngineFixture fixture(
        {.sizes = {.num_pages = 64, .page_size = 4, .num_state_slots = 1, .max_sequences = 1},
         .limits = {.max_tokens = 64},
         .on_failure = [&num_failures] { ++num_failures; }});
    Received running, queued;
    ASSERT_TRUE(fixture.submit(EngineFixture::request("running", 3, 100), running).ok());
    ASSERT_TRUE(fixture.submit(EngineFixture::request("queued", 3, 100), queued).ok());
    fixture.engine->step();
    EXPECT_EQ(num_failures, 0);
    fixture.runner->on_step = bad_step;
    EXPECT_FALSE(fixture.engine->step());
    fixture.engine->step();
    EXPECT_EQ(num_failures, 1) << "it is reported once";
    for (const Received* received : {&running, &queued}) {
      EXPECT_EQ(received->reason(), FinishReason::kError);
      EXPECT_THAT(received->finish->error.message(),
                  AnyOf(HasSubstr("the device is gone"), HasSubstr("ran out of host memory")));
    }
    EXPECT_EQ(fixture.engine->health().message(), running.finish->error.message());
    const Status refused = fixture.submit(EngineFixture::request("late"), running);
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_THAT(refused.message(), HasSubstr("the engine has stopped"));
    EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0);
  }
}

TEST(EngineLoopTest, DoesNotTrustTokensOutsideTheVocabulary) {
  EngineFixture fixture;
  fixture.script({1000000});
  const Received received = fixture.run(EngineFixture::request("one"));
  EXPECT_EQ(received.reason(), FinishReason::kError);
  EXPECT_THAT(received.finish->error.message(), HasSubstr("token 1000000 of a vocabulary of 300"));
}

TEST(EngineLoopTest, SurvivesACallbackThatThrows) {
  EngineFixture fixture;
  int events = 0;
  ASSERT_TRUE(fixture.engine
                  ->submit(EngineFixture::request("one", 3, 3),
                           [&](const RequestEvent&) {
                             ++events;
                             throw std::runtime_error("no");
                           })
                  .ok());
  Received other;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("other", 3, 3), other).ok());
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(events, 3);
  EXPECT_EQ(std::ssize(other.tokens), 3);
  EXPECT_TRUE(fixture.engine->health().ok());
}

TEST(EngineLoopTest, FreesTheIdBeforeTheLastEvent) {
  EngineFixture fixture;
  Received second;
  Status resubmitted = internal_error("not called");
  ASSERT_TRUE(fixture.engine
                  ->submit(EngineFixture::request("same", 3, 1),
                           [&](const RequestEvent& event) {
                             if (event.finish)
                               resubmitted = fixture.submit(EngineFixture::request("same"), second);
                           })
                  .ok());
  while (fixture.engine->step()) {
  }
  EXPECT_TRUE(resubmitted.ok()) << resubmitted.to_string();
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(second.reason(), FinishReason::kLength);
}

TEST(EngineLoopTest, KeepsTheRequestsSeedAndDrawsOthersFromItsOwn) {
  std::vector<uint64_t> seeds;
  for (int run = 0; run < 2; ++run) {
    EngineFixture fixture;
    fixture.runner->on_step = [&](const request::BatchPlan& plan) {
      for (const auto& start : plan.starts) seeds.push_back(start.seed);
      return Status();
    };
    Request seeded = EngineFixture::request("seeded", 3, 1);
    seeded.sampling.seed = 42;
    fixture.run(seeded);
    fixture.run(EngineFixture::request("a", 3, 1));
    fixture.run(EngineFixture::request("b", 3, 1));
  }
  ASSERT_EQ(seeds.size(), 6u);
  EXPECT_EQ(seeds[0], 42u);
  EXPECT_NE(seeds[1], seeds[2]);
  EXPECT_EQ(seeds[1], seeds[4]);  // random_seed fixes them
  EXPECT_EQ(seeds[2], seeds[5]);
}

TEST(EngineLoopTest, ReportsTimesFromTheClock) {
  EngineFixture fixture(
      {.sizes = {.num_pages = 64, .page_size = 4, .num_state_slots = 1, .max_sequences = 1},
       .limits = {.max_tokens = 64}});
  fixture.runner->on_step = [&](const request::BatchPlan&) {
    fixture.clock.advance_seconds(1);
    return Status();
  };
  Received first, second;
  fixture.clock.advance_seconds(100);
  ASSERT_TRUE(fixture.submit(EngineFixture::request("first", 3, 3), first).ok());
  fixture.clock.advance_seconds(0.5);
  ASSERT_TRUE(fixture.submit(EngineFixture::request("second", 3, 2), second).ok());
  while (fixture.engine->step()) {
  }
  EXPECT_DOUBLE_EQ(first.last.queue_seconds, 0.5);
  EXPECT_DOUBLE_EQ(first.last.first_token_seconds, 1.5);
  EXPECT_DOUBLE_EQ(first.last.elapsed_seconds, 3.5);
  EXPECT_DOUBLE_EQ(second.last.queue_seconds, 3);
  EXPECT_DOUBLE_EQ(second.last.first_token_seconds, 4);
  EXPECT_DOUBLE_EQ(second.last.elapsed_seconds, 5);
}

TEST(EngineLoopTest, CountsStepsTokensAndRequests) {
  EngineFixture fixture(
      {.sizes = {.num_pages = 64, .page_size = 4, .num_state_slots = 1, .max_sequences = 1},
       .limits = {.max_tokens = 64}});
  Received first, second;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("first", 6, 3), first).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("second", 5, 2), second).ok());
  EXPECT_EQ(fixture.engine->stats().num_waiting, 2);
  fixture.clock.advance_seconds(2);
  EXPECT_DOUBLE_EQ(fixture.engine->stats().last_step_seconds_ago, 2);
  fixture.engine->step();
  EngineStats stats = fixture.engine->stats();
  EXPECT_EQ(stats.num_running, 1);
  EXPECT_EQ(stats.num_waiting, 1);
  EXPECT_EQ(stats.kv_tokens_used, 8);
  EXPECT_EQ(stats.state_slots_used, 1);
  EXPECT_DOUBLE_EQ(stats.last_step_seconds_ago, 0);
  while (fixture.engine->step()) {
  }
  fixture.clock.advance_seconds(50);
  stats = fixture.engine->stats();
  EXPECT_EQ(stats.num_running + stats.num_waiting, 0);
  EXPECT_EQ(stats.steps, 5);
  EXPECT_EQ(stats.prompt_tokens, 11);
  EXPECT_EQ(stats.output_tokens, 5);
  EXPECT_DOUBLE_EQ(stats.last_step_seconds_ago, 0);
}

TEST(EngineLoopTest, DrainFinishesRequestsAndAbortsSlowOnes) {
  EngineFixture fixture;
  Received quick, slow, late;
  fixture.runner->on_step = [&](const request::BatchPlan&) {
    fixture.clock.advance_seconds(1);
    return Status();
  };
  ASSERT_TRUE(fixture.submit(EngineFixture::request("quick", 3, 2), quick).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("slow", 3, 100), slow).ok());
  EXPECT_EQ(fixture.engine->drain(5), 1);
  EXPECT_EQ(quick.reason(), FinishReason::kLength);
  EXPECT_EQ(slow.reason(), FinishReason::kAbort);
  EXPECT_EQ(fixture.submit(EngineFixture::request("late"), late).code(), StatusCode::kUnavailable);
  EXPECT_EQ(fixture.engine->drain(5), 0);
}

TEST(EngineLoopTest, AbortsRequestsWhenDestroyed) {
  Received running, in_inbox;
  {
    EngineFixture fixture;
    ASSERT_TRUE(fixture.submit(EngineFixture::request("running", 3, 100), running).ok());
    fixture.engine->step();
    ASSERT_TRUE(fixture.submit(EngineFixture::request("in inbox", 3, 100), in_inbox).ok());
  }
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_EQ(in_inbox.reason(), FinishReason::kAbort);
}

TEST(EngineLoopTest, RefusesSchedulingOptionsThatDoNotGoTogether) {
  EngineParts parts;
  parts.runner = std::make_unique<testing::FakeRunner>(roomy_pools(), roomy_limits());
  parts.options.scheduling.policy = QueuePolicy::kLpm;
  parts.options.scheduling.enable_priority = true;
  parts.drive = Drive::kManual;
  const auto engine = EngineLoop::create(std::move(parts));
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
}

// Random requests, pools and cancellations: every request hears its own tokens in order, and its
// end once.
TEST(EngineLoopTest, AnswersEveryRequestInRandomScenarios) {
  constexpr unsigned kScenarios = HEDDLE_SANITIZED ? 200 : 600;
  for (unsigned seed = 0; seed < kScenarios; ++seed) {
    SCOPED_TRACE(fmt::format("seed = {}", seed));
    std::mt19937 random(seed);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const int32_t slots = static_cast<int32_t>(between(1, 5));
    EngineFixture fixture({.sizes = {.num_pages = between(8, 40),
                                     .page_size = 1 << between(0, 3),
                                     .num_state_slots = between(0, 1) * between(1, 5),
                                     .max_sequences = slots},
                           .limits = {.max_tokens = slots + between(0, 30)},
                           .context_length = 100,
                           .max_queued_requests = static_cast<int32_t>(between(1, 20)),
                           .chunked_prefill_tokens = between(1, 40),
                           .scheduling = {.overlap = between(0, 1) == 0},
                           .cache = {.enabled = between(0, 1) == 0}});
    const int64_t context = fixture.engine->model_info().context_length;
    std::map<std::string, std::pair<Request, std::unique_ptr<Received>>> requests;
    int64_t made = 0;
    for (bool busy = true; busy || made < 12;) {
      while (made < 12 && between(0, 1) == 0) {
        const int64_t prompt = between(1, context);
        Request request = EngineFixture::request(fmt::format("request {}", made++), prompt,
                                                 between(0, context - prompt));
        for (TokenId& token : request.prompt) token = static_cast<TokenId>(between(0, 255));
        request.stop.texts = {"a", "bc"};
        auto received = std::make_unique<Received>();
        if (fixture.submit(request, *received).ok()) {
          requests[request.id] = {request, std::move(received)};
        }
      }
      if (between(0, 7) == 0) fixture.engine->cancel(fmt::format("request {}", between(0, made)));
      busy = fixture.engine->step();
      fixture.engine->check_invariants();
    }
    ASSERT_THAT(fixture.runner->complaints(), IsEmpty());
    ASSERT_EQ(fixture.engine->stats().kv_tokens_used, 0);
    ASSERT_EQ(fixture.engine->stats().state_slots_used, 0);
    for (const auto& [id, entry] : requests) {
      const auto& [request, received] = entry;
      ASSERT_EQ(received->num_finishes, 1) << id;
      const auto want = hash_output(request.prompt, std::ssize(received->tokens));
      ASSERT_EQ(received->tokens, want) << id;
      if (received->reason() == FinishReason::kLength) {
        ASSERT_EQ(std::ssize(received->tokens), request.stop.max_new_tokens);
      } else if (received->reason() == FinishReason::kStop) {
        ASSERT_TRUE(received->finish->matched_text);
      } else {
        ASSERT_EQ(received->reason(), FinishReason::kAbort);
      }
    }
  }
}

// A BatchScheduler that counts how often it is asked to prove its invariants.
class CountingScheduler final : public scheduler::Scheduler {
 public:
  CountingScheduler(std::unique_ptr<scheduler::Scheduler> inner, int64_t& num_checks)
      : inner_(std::move(inner)), num_checks_(num_checks) {}

  [[nodiscard]] Status check_fits(const request::Sequence& sequence) const override {
    return inner_->check_fits(sequence);
  }

  [[nodiscard]] Status check_call(
      std::span<const request::Sequence* const> sequences) const override {
    return inner_->check_call(sequences);
  }

  Status submit_all(std::span<request::Sequence* const> sequences) override {
    return inner_->submit_all(sequences);
  }

  void plan(request::BatchPlan& plan) override { inner_->plan(plan); }

  void catch_up() override { inner_->catch_up(); }

  void complete(const request::BatchPlan& plan, const request::StepOutput& output) override {
    inner_->complete(plan, output);
  }

  void abandon(const request::BatchPlan& plan) override { inner_->abandon(plan); }

  void release(request::Sequence& sequence, scheduler::Ending ending) override {
    inner_->release(sequence, ending);
  }

  void take_dropped(std::vector<scheduler::Dropped>& dropped) override {
    inner_->take_dropped(dropped);
  }

  void retract_all() override { inner_->retract_all(); }

  void set_paused(bool paused) override { inner_->set_paused(paused); }

  void defer_arrivals(bool defer) override { inner_->defer_arrivals(defer); }

  void clear_cache() override { inner_->clear_cache(); }

  [[nodiscard]] scheduler::SchedulerStats stats() const override { return inner_->stats(); }

  void check_invariants() const override {
    inner_->check_invariants();
    ++num_checks_;
  }

 private:
  std::unique_ptr<scheduler::Scheduler> inner_;
  int64_t& num_checks_;
};

TEST(EngineLoopTest, DebugAndSanitizedBuildsCheckInvariantsWhenTheLastRequestHasEnded) {
  ManualClock clock;
  int64_t num_checks = 0;
  EngineParts parts;
  parts.runner = std::make_unique<FakeRunner>(roomy_pools(), roomy_limits());
  parts.info = {.name = "fake", .vocab_size = 256, .context_length = 100};
  parts.clock = &clock;
  parts.drive = Drive::kManual;
  const auto options =
      scheduler_options(parts.options, parts.runner->pool_sizes(), parts.runner->step_limits())
          .value();
  parts.scheduler = std::make_unique<CountingScheduler>(
      scheduler::BatchScheduler::create(options, clock).value(), num_checks);
  const auto engine = EngineLoop::create(std::move(parts)).value();
  for (int64_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(engine->submit(EngineFixture::request("a", 5, 3), nullptr).ok());
    ASSERT_TRUE(engine->submit(EngineFixture::request("b", 5, 30), nullptr).ok());
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(engine->step());
      EXPECT_EQ(num_checks, kChecksWhenIdle ? round - 1 : 0) << "a request is left";
    }
    engine->cancel("b");
    while (engine->step()) {
    }
    engine->step();  // idle
    EXPECT_EQ(num_checks, kChecksWhenIdle ? round : 0);
  }
}

TEST(MemoryPlanTest, ReadsAsASentence) {
  const MemoryPlan plan{.weights_bytes = 5 << 20,
                        .mapped_weights_bytes = 26 << 20,
                        .kv_pool_bytes = int64_t{2} << 30,
                        .state_pool_bytes = 105 << 20,
                        .activation_bytes = 512 << 10,
                        .kv_tokens = 524288,
                        .kv_dtype = "bfloat16",
                        .state_slots = 64,
                        .page_size = 16,
                        .max_running_requests = 64};
  EXPECT_EQ(
      plan.to_string(),
      "weights 5.0 MiB and 26.0 MiB mapped, KV 2.00 GiB for 524288 tokens in bfloat16, "
      "pages of 16, "
      "states 105.0 MiB for 64 sequences, activations 512.0 KiB; at most 64 requests at once");
}

TEST(MemoryPlanTest, NamesTheLayersThatSlide) {
  const MemoryPlan plan{.weights_bytes = 5 << 20,
                        .kv_pool_bytes = int64_t{2} << 30,
                        .window_pool_bytes = 180 << 20,
                        .activation_bytes = 512 << 10,
                        .device_bytes = int64_t{3} << 30,
                        .kv_tokens = 524288,
                        .window_tokens = 49152,
                        .kv_dtype = "bfloat16",
                        .page_size = 16,
                        .max_running_requests = 64};
  EXPECT_EQ(plan.to_string(),
            "weights 5.0 MiB, KV 2.00 GiB for 524288 tokens in bfloat16, pages of 16, sliding "
            "layers 180.0 MiB for 49152 tokens of windows, activations 512.0 KiB, by the driver's "
            "count 3.00 GiB in all; at most 64 requests at once");
}

}  // namespace
}  // namespace heddle::engine
