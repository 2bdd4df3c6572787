// SPDX-License-Identifier: Apache-2.0
// The loop under a manual clock, step by step.
#include "engine/engine_loop.h"

#include <map>
#include <new>
#include <random>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/sanitizers.h"
#include "engine/engine_test_bench.h"

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
  EngineBench bench;
  const Request request = EngineBench::request("one", 5, 3);
  const Heard heard = bench.run(request);
  EXPECT_EQ(heard.num_events, 3);
  EXPECT_EQ(heard.tokens, hash_output(request.prompt, 3));
  EXPECT_EQ(heard.reason(), FinishReason::kLength);
  EXPECT_EQ(heard.last.prompt_tokens, 5);
  EXPECT_EQ(heard.last.completion_tokens, 3);
  EXPECT_EQ(heard.last.cached_tokens, 0);
  EXPECT_THAT(bench.runner->complaints(), IsEmpty());
}

TEST(EngineLoopTest, ComputesThePromptAndEndsWhenNoTokensAreWanted) {
  EngineBench bench;
  const Heard heard = bench.run(EngineBench::request("one", 100, 0));
  EXPECT_EQ(heard.num_events, 1);
  EXPECT_THAT(heard.tokens, IsEmpty());
  EXPECT_EQ(heard.reason(), FinishReason::kLength);
  EXPECT_EQ(bench.runner->num_steps(), 4);  // chunks of 32 and 4
}

TEST(EngineLoopTest, UsesTheContextToTheLastTokenAndRefusesMore) {
  EngineBench bench;
  EXPECT_EQ(std::ssize(bench.run(EngineBench::request("one", 500, 12)).tokens), 12);
  Heard heard;
  const Status status = bench.submit(EngineBench::request("one", 500, 13), heard);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("maximum context length is 512 tokens"));
  EXPECT_EQ(heard.num_events, 0);
}

TEST(EngineLoopTest, LowersTheContextToWhatTheKvPoolHolds) {
  EngineBench bench({.sizes = {.num_pages = 10,
                               .page_size = 4,
                               .num_state_slots = 1,
                               .max_step_tokens = 64,
                               .max_step_sequences = 1}});
  EXPECT_EQ(bench.engine->model_info().context_length, 40);
  EXPECT_EQ(std::ssize(bench.run(EngineBench::request("one", 30, 10)).tokens), 10);
}

TEST(EngineLoopTest, HandsOnLogprobs) {
  EngineBench bench;
  Request request = EngineBench::request("one", 3, 2);
  request.return_logprobs = true;
  request.top_logprobs = 3;
  const Heard heard = bench.run(request);
  ASSERT_EQ(heard.logprobs.size(), 2u);
  EXPECT_EQ(heard.logprobs[1].token, heard.tokens[1]);
  EXPECT_EQ(heard.logprobs[1].top.size(), 3u);
  EXPECT_THAT(bench.run(EngineBench::request("one", 3, 2)).logprobs, IsEmpty());
}

TEST(EngineLoopTest, WorksWithoutATokenizerOnTokensAlone) {
  EngineBench bench({.tokenizer = false});
  EXPECT_EQ(bench.engine->tokenizer(), nullptr);
  const Heard heard = bench.run(EngineBench::request("one", 3, 4));
  EXPECT_EQ(std::ssize(heard.tokens), 4);
  EXPECT_EQ(heard.text, "");
  Request request = EngineBench::request("two");
  request.stop.texts = {"x"};
  Heard unheard;
  EXPECT_THAT(bench.submit(request, unheard).message(), HasSubstr("need a tokenizer"));
}

TEST(EngineLoopTest, CancelsInTheInboxInTheQueueAndWhileRunning) {
  EngineBench bench({.sizes = {.num_pages = 64,
                               .page_size = 4,
                               .num_state_slots = 1,
                               .max_step_tokens = 64,
                               .max_step_sequences = 1}});
  Heard running, queued, in_inbox;
  ASSERT_TRUE(bench.submit(EngineBench::request("running", 3, 100), running).ok());
  ASSERT_TRUE(bench.submit(EngineBench::request("queued", 3, 100), queued).ok());
  bench.engine->step();
  ASSERT_TRUE(bench.submit(EngineBench::request("in inbox", 3, 100), in_inbox).ok());
  bench.engine->cancel("in inbox");
  bench.engine->cancel("queued");
  bench.engine->cancel("queued");
  bench.engine->cancel("nobody");
  EXPECT_TRUE(bench.engine->step());
  EXPECT_EQ(in_inbox.reason(), FinishReason::kAbort);
  EXPECT_EQ(queued.reason(), FinishReason::kAbort);
  EXPECT_EQ(std::ssize(running.tokens), 2);
  bench.engine->cancel("running");
  EXPECT_FALSE(bench.engine->step());
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_EQ(std::ssize(running.tokens), 2);
  bench.engine->cancel("running");
  EXPECT_FALSE(bench.engine->step());
  EXPECT_EQ(running.num_finishes, 1);
  EXPECT_EQ(bench.engine->stats().kv_tokens_used, 0);
}

TEST(EngineLoopTest, AFailedDrawEndsItsOwnRequestOnly) {
  EngineBench bench;
  bench.runner->sequence_error = [](const request::PlannedSequence& sequence) {
    return sequence.sequence_id == 1 && sequence.output_tokens.size() == 2
               ? internal_error("numerical error: a logit is not a number")
               : Status();
  };
  Heard failing, other;
  ASSERT_TRUE(bench.submit(EngineBench::request("failing", 3, 5), failing).ok());
  ASSERT_TRUE(bench.submit(EngineBench::request("other", 3, 5), other).ok());
  while (bench.engine->step()) {
  }
  EXPECT_EQ(failing.reason(), FinishReason::kError);
  EXPECT_THAT(failing.finish->error.message(), HasSubstr("numerical error"));
  EXPECT_EQ(std::ssize(failing.tokens), 2);
  EXPECT_EQ(std::ssize(other.tokens), 5);
  EXPECT_TRUE(bench.engine->health().ok());
}

TEST(EngineLoopTest, AFailedStepEndsEveryRequestAndTheEngineSaysWhy) {
  const auto bad_steps = std::vector<std::function<Status(const request::BatchPlan&)>>{
      [](const request::BatchPlan&) { return device_lost("the device is gone"); },
      [](const request::BatchPlan&) -> Status { throw std::runtime_error("the device is gone"); },
      [](const request::BatchPlan&) -> Status { throw std::bad_alloc(); },
  };
  for (const auto& bad_step : bad_steps) {
    EngineBench bench({.sizes = {.num_pages = 64,
                                 .page_size = 4,
                                 .num_state_slots = 1,
                                 .max_step_tokens = 64,
                                 .max_step_sequences = 1}});
    Heard running, queued;
    ASSERT_TRUE(bench.submit(EngineBench::request("running", 3, 100), running).ok());
    ASSERT_TRUE(bench.submit(EngineBench::request("queued", 3, 100), queued).ok());
    bench.engine->step();
    bench.runner->on_step = bad_step;
    EXPECT_FALSE(bench.engine->step());
    for (const Heard* heard : {&running, &queued}) {
      EXPECT_EQ(heard->reason(), FinishReason::kError);
      EXPECT_THAT(heard->finish->error.message(),
                  AnyOf(HasSubstr("the device is gone"), HasSubstr("ran out of host memory")));
    }
    EXPECT_EQ(bench.engine->health().message(), running.finish->error.message());
    const Status refused = bench.submit(EngineBench::request("late"), running);
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_THAT(refused.message(), HasSubstr("the engine has stopped"));
    EXPECT_EQ(bench.engine->stats().kv_tokens_used, 0);
  }
}

TEST(EngineLoopTest, DoesNotTrustTokensOutsideTheVocabulary) {
  EngineBench bench;
  bench.script({1000000});
  const Heard heard = bench.run(EngineBench::request("one"));
  EXPECT_EQ(heard.reason(), FinishReason::kError);
  EXPECT_THAT(heard.finish->error.message(), HasSubstr("token 1000000 of a vocabulary of 300"));
}

TEST(EngineLoopTest, SurvivesACallbackThatThrows) {
  EngineBench bench;
  int events = 0;
  ASSERT_TRUE(bench.engine
                  ->submit(EngineBench::request("one", 3, 3),
                           [&](const RequestEvent&) {
                             ++events;
                             throw std::runtime_error("no");
                           })
                  .ok());
  Heard other;
  ASSERT_TRUE(bench.submit(EngineBench::request("other", 3, 3), other).ok());
  while (bench.engine->step()) {
  }
  EXPECT_EQ(events, 3);
  EXPECT_EQ(std::ssize(other.tokens), 3);
  EXPECT_TRUE(bench.engine->health().ok());
}

TEST(EngineLoopTest, FreesTheIdBeforeTheLastEvent) {
  EngineBench bench;
  Heard second;
  Status resubmitted = internal_error("not called");
  ASSERT_TRUE(bench.engine
                  ->submit(EngineBench::request("same", 3, 1),
                           [&](const RequestEvent& event) {
                             if (event.finish)
                               resubmitted = bench.submit(EngineBench::request("same"), second);
                           })
                  .ok());
  while (bench.engine->step()) {
  }
  EXPECT_TRUE(resubmitted.ok()) << resubmitted.to_string();
  while (bench.engine->step()) {
  }
  EXPECT_EQ(second.reason(), FinishReason::kLength);
}

TEST(EngineLoopTest, KeepsTheRequestsSeedAndDrawsOthersFromItsOwn) {
  std::vector<uint64_t> seeds;
  for (int run = 0; run < 2; ++run) {
    EngineBench bench;
    bench.runner->on_step = [&](const request::BatchPlan& plan) {
      for (const auto& sequence : plan.sequences) seeds.push_back(sequence.seed);
      return Status();
    };
    Request seeded = EngineBench::request("seeded", 3, 1);
    seeded.sampling.seed = 42;
    bench.run(seeded);
    bench.run(EngineBench::request("a", 3, 1));
    bench.run(EngineBench::request("b", 3, 1));
  }
  ASSERT_EQ(seeds.size(), 6u);
  EXPECT_EQ(seeds[0], 42u);
  EXPECT_NE(seeds[1], seeds[2]);
  EXPECT_EQ(seeds[1], seeds[4]);  // random_seed fixes them
  EXPECT_EQ(seeds[2], seeds[5]);
}

TEST(EngineLoopTest, ReportsTimesFromTheClock) {
  EngineBench bench({.sizes = {.num_pages = 64,
                               .page_size = 4,
                               .num_state_slots = 1,
                               .max_step_tokens = 64,
                               .max_step_sequences = 1}});
  bench.runner->on_step = [&](const request::BatchPlan&) {
    bench.clock.advance_seconds(1);
    return Status();
  };
  Heard first, second;
  bench.clock.advance_seconds(100);
  ASSERT_TRUE(bench.submit(EngineBench::request("first", 3, 3), first).ok());
  bench.clock.advance_seconds(0.5);
  ASSERT_TRUE(bench.submit(EngineBench::request("second", 3, 2), second).ok());
  while (bench.engine->step()) {
  }
  EXPECT_DOUBLE_EQ(first.last.queue_seconds, 0.5);
  EXPECT_DOUBLE_EQ(first.last.first_token_seconds, 1.5);
  EXPECT_DOUBLE_EQ(first.last.elapsed_seconds, 3.5);
  EXPECT_DOUBLE_EQ(second.last.queue_seconds, 3);
  EXPECT_DOUBLE_EQ(second.last.first_token_seconds, 4);
  EXPECT_DOUBLE_EQ(second.last.elapsed_seconds, 5);
}

TEST(EngineLoopTest, CountsWhatItDoes) {
  EngineBench bench({.sizes = {.num_pages = 64,
                               .page_size = 4,
                               .num_state_slots = 1,
                               .max_step_tokens = 64,
                               .max_step_sequences = 1}});
  Heard first, second;
  ASSERT_TRUE(bench.submit(EngineBench::request("first", 6, 3), first).ok());
  ASSERT_TRUE(bench.submit(EngineBench::request("second", 5, 2), second).ok());
  EXPECT_EQ(bench.engine->stats().num_waiting, 2);
  bench.clock.advance_seconds(2);
  EXPECT_DOUBLE_EQ(bench.engine->stats().last_step_seconds_ago, 2);
  bench.engine->step();
  EngineStats stats = bench.engine->stats();
  EXPECT_EQ(stats.num_running, 1);
  EXPECT_EQ(stats.num_waiting, 1);
  EXPECT_EQ(stats.kv_tokens_used, 8);
  EXPECT_EQ(stats.state_slots_used, 1);
  EXPECT_DOUBLE_EQ(stats.last_step_seconds_ago, 0);
  while (bench.engine->step()) {
  }
  bench.clock.advance_seconds(50);
  stats = bench.engine->stats();
  EXPECT_EQ(stats.num_running + stats.num_waiting, 0);
  EXPECT_EQ(stats.steps, 5);
  EXPECT_EQ(stats.prompt_tokens, 11);
  EXPECT_EQ(stats.output_tokens, 5);
  EXPECT_DOUBLE_EQ(stats.last_step_seconds_ago, 0);
}

TEST(EngineLoopTest, DrainsWhatIsThereAndAbortsWhatTakesTooLong) {
  EngineBench bench;
  Heard quick, slow, late;
  bench.runner->on_step = [&](const request::BatchPlan&) {
    bench.clock.advance_seconds(1);
    return Status();
  };
  ASSERT_TRUE(bench.submit(EngineBench::request("quick", 3, 2), quick).ok());
  ASSERT_TRUE(bench.submit(EngineBench::request("slow", 3, 100), slow).ok());
  EXPECT_EQ(bench.engine->drain(5), 1);
  EXPECT_EQ(quick.reason(), FinishReason::kLength);
  EXPECT_EQ(slow.reason(), FinishReason::kAbort);
  EXPECT_EQ(bench.submit(EngineBench::request("late"), late).code(), StatusCode::kUnavailable);
  EXPECT_EQ(bench.engine->drain(5), 0);
}

TEST(EngineLoopTest, AbortsWhatRunsWhenItIsDestroyed) {
  Heard running, in_inbox;
  {
    EngineBench bench;
    ASSERT_TRUE(bench.submit(EngineBench::request("running", 3, 100), running).ok());
    bench.engine->step();
    ASSERT_TRUE(bench.submit(EngineBench::request("in inbox", 3, 100), in_inbox).ok());
  }
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_EQ(in_inbox.reason(), FinishReason::kAbort);
}

TEST(EngineLoopTest, RefusesSchedulingOptionsThatDoNotGoTogether) {
  EngineParts parts;
  parts.runner = std::make_unique<testing::FakeRunner>(roomy_pools());
  parts.options.scheduling.policy = "lpm";
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
    const int32_t rows = static_cast<int32_t>(between(1, 5));
    EngineBench bench({.sizes = {.num_pages = between(8, 40),
                                 .page_size = 1 << between(0, 3),
                                 .num_state_slots = between(0, 1) * between(1, 5),
                                 .max_step_tokens = rows + between(0, 30),
                                 .max_step_sequences = rows},
                       .context_length = 100,
                       .max_queued_requests = static_cast<int32_t>(between(1, 20)),
                       .chunked_prefill_tokens = between(1, 40),
                       .scheduling = {.overlap = between(0, 1) == 0},
                       .cache = {.enabled = between(0, 1) == 0}});
    const int64_t context = bench.engine->model_info().context_length;
    std::map<std::string, std::pair<Request, std::unique_ptr<Heard>>> requests;
    int64_t made = 0;
    for (bool busy = true; busy || made < 12;) {
      while (made < 12 && between(0, 1) == 0) {
        const int64_t prompt = between(1, context);
        Request request = EngineBench::request(fmt::format("request {}", made++), prompt,
                                               between(0, context - prompt));
        for (TokenId& token : request.prompt) token = static_cast<TokenId>(between(0, 255));
        request.stop.texts = {"a", "bc"};
        auto heard = std::make_unique<Heard>();
        if (bench.submit(request, *heard).ok()) {
          requests[request.id] = {request, std::move(heard)};
        }
      }
      if (between(0, 7) == 0) bench.engine->cancel(fmt::format("request {}", between(0, made)));
      busy = bench.engine->step();
      bench.engine->check_invariants();
    }
    ASSERT_THAT(bench.runner->complaints(), IsEmpty());
    ASSERT_EQ(bench.engine->stats().kv_tokens_used, 0);
    ASSERT_EQ(bench.engine->stats().state_slots_used, 0);
    for (const auto& [id, entry] : requests) {
      const auto& [request, heard] = entry;
      ASSERT_EQ(heard->num_finishes, 1) << id;
      const auto want = hash_output(request.prompt, std::ssize(heard->tokens));
      ASSERT_EQ(heard->tokens, want) << id;
      if (heard->reason() == FinishReason::kLength) {
        ASSERT_EQ(std::ssize(heard->tokens), request.stop.max_new_tokens);
      } else if (heard->reason() == FinishReason::kStop) {
        ASSERT_TRUE(heard->finish->matched_text);
      } else {
        ASSERT_EQ(heard->reason(), FinishReason::kAbort);
      }
    }
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

}  // namespace
}  // namespace heddle::engine
