// SPDX-License-Identifier: Apache-2.0
// Pausing and going on: nobody's answer changes, and nothing is computed in between.
#include <new>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_test_bench.h"

namespace heddle::engine {
namespace {

using ::heddle::testing::FakeRunner;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<TokenId> answer_to(const Request& request) {
  std::vector<TokenId> tokens = request.prompt;
  std::vector<TokenId> output;
  for (int64_t i = 0; i < request.stop.max_new_tokens; ++i) {
    tokens.push_back(FakeRunner::next_token(tokens));
    output.push_back(tokens.back());
  }
  return output;
}

class EnginePauseTest : public ::testing::TestWithParam<bool> {
 protected:
  static EngineBench::Options options() {
    EngineBench::Options options;
    options.scheduling.overlap = GetParam();
    return options;
  }

  // A request with an id and a record of its own.
  struct Asked {
    Request request;
    Heard heard;
  };

  void ask(Asked& asked, const char* id, int64_t prompt_tokens, int64_t max_new_tokens) {
    asked.request = EngineBench::request(id, prompt_tokens, max_new_tokens);
    asked.request.stop.ignore_eos = true;
    const Status status = bench_.submit(asked.request, asked.heard);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      bench_.engine->step();
      bench_.engine->check_invariants();
    }
  }

  // The engine has done it when this returns.
  void pause(PauseMode mode) {
    int64_t done = 0;
    bench_.engine->pause(mode, [&](const Status& status) { done += status.ok() ? 1 : 100; });
    EXPECT_EQ(done, 0);
    steps(1);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(bench_.runner->num_in_flight(), 0);
    EXPECT_TRUE(bench_.engine->stats().paused);
  }

  void resume() {
    int64_t done = 0;
    bench_.engine->resume([&](const Status& status) { done += status.ok() ? 1 : 100; });
    steps(1);
    EXPECT_EQ(done, 1);
    EXPECT_FALSE(bench_.engine->stats().paused);
  }

  void finish() {
    while (bench_.engine->step()) bench_.engine->check_invariants();
    EXPECT_THAT(bench_.runner->complaints(), IsEmpty());
    EXPECT_EQ(bench_.engine->stats().kv_tokens_used, 0);
  }

  EngineBench bench_{options()};
};

TEST_P(EnginePauseTest, WhoIsPausedInPlaceGoesOnFromThere) {
  Asked decoding, prefilling, late;
  ask(decoding, "decoding", 5, 20);
  steps(4);
  ask(prefilling, "prefilling", 100, 5);  // four chunks
  steps(1);
  pause(PauseMode::kInPlace);
  const int64_t computed = bench_.runner->num_steps();
  const size_t drawn = decoding.heard.tokens.size();
  EXPECT_GT(bench_.engine->stats().kv_tokens_used, 0);
  EXPECT_THAT(bench_.engine->metrics_text(), HasSubstr("paused_requests{model_name=\"fake\"} 2"));
  ask(late, "late", 5, 3);
  steps(10);
  EXPECT_EQ(bench_.runner->num_steps(), computed);
  EXPECT_EQ(decoding.heard.tokens.size(), drawn);
  EXPECT_EQ(bench_.engine->stats().num_waiting, 1);
  resume();
  finish();
  for (const Asked* asked : {&decoding, &prefilling, &late}) {
    EXPECT_EQ(asked->heard.tokens, answer_to(asked->request));
    EXPECT_EQ(asked->heard.num_finishes, 1);
  }
}

TEST_P(EnginePauseTest, WhoIsRetractedHoldsNothingAndGoesOnAllTheSame) {
  Asked first, second;
  ask(first, "first", 50, 20);
  ask(second, "second", 5, 20);
  steps(6);
  pause(PauseMode::kRetract);
  const EngineStats stats = bench_.engine->stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 2);
  EXPECT_EQ(stats.kv_tokens_used, 0);
  EXPECT_EQ(stats.state_slots_used, 0);
  Status cleared = internal_error("not yet");
  bench_.engine->clear_cache(0, [&](Status status) { cleared = std::move(status); });
  steps(1);
  EXPECT_TRUE(cleared.ok()) << cleared.to_string();
  resume();
  finish();
  EXPECT_EQ(first.heard.tokens, answer_to(first.request));
  EXPECT_EQ(second.heard.tokens, answer_to(second.request));
}

TEST_P(EnginePauseTest, TheCacheIsInUseWhileSomebodyIsPausedInPlace) {
  Asked asked;
  ask(asked, "one", 5, 20);
  steps(3);
  pause(PauseMode::kInPlace);
  Status cleared;
  bench_.engine->clear_cache(2, [&](Status status) { cleared = std::move(status); });
  steps(3);
  EXPECT_TRUE(cleared.ok()) << "not answered yet";
  bench_.clock.advance_seconds(3);
  steps(1);
  EXPECT_EQ(cleared.code(), StatusCode::kDeadlineExceeded);
  pause(PauseMode::kRetract);  // a second pause
  bench_.engine->clear_cache(0, [&](Status status) { cleared = std::move(status); });
  steps(1);
  EXPECT_TRUE(cleared.ok());
  resume();
  finish();
  EXPECT_EQ(asked.heard.tokens, answer_to(asked.request));
}

TEST_P(EnginePauseTest, WhoIsAbortedKeepsItsTextAndOthersWait) {
  bench_.script({'H', 'i', '!', '?', '.', ',', ';'});
  Asked running, waiting, late;
  ask(running, "running", 5, 20);
  steps(3);
  ask(waiting, "waiting", 5, 20);
  pause(PauseMode::kAbort);
  EXPECT_EQ(running.heard.reason(), FinishReason::kAbort);
  EXPECT_TRUE(running.heard.finish->error.ok());
  EXPECT_THAT(running.heard.text, HasSubstr("Hi"));
  EXPECT_EQ(waiting.heard.reason(), FinishReason::kAbort);
  ask(late, "late", 5, 3);
  steps(3);
  EXPECT_FALSE(late.heard.finish);
  resume();
  finish();
  EXPECT_EQ(late.heard.text, "Hi!");
}

TEST_P(EnginePauseTest, LimitsHoldMeanwhile) {
  EngineBench::Options limited = options();
  limited.max_queued_requests = 2;
  limited.scheduling.queue_timeout_seconds = 5;
  EngineBench bench(limited);
  const auto submit = [&bench](const char* id, Heard& heard, double deadline_seconds = 0) {
    Request request = EngineBench::request(id, 3, 50);
    request.stop.ignore_eos = true;
    request.deadline_seconds = deadline_seconds;
    return bench.submit(request, heard);
  };
  Heard running, waiting, cancelled, refused;
  ASSERT_TRUE(submit("running", running, 8).ok());
  for (int i = 0; i < 3; ++i) bench.engine->step();
  bench.engine->pause(PauseMode::kInPlace, [](const Status&) {});
  bench.engine->step();
  ASSERT_TRUE(submit("waiting", waiting).ok());
  ASSERT_TRUE(submit("cancelled", cancelled).ok());
  bench.engine->step();
  EXPECT_EQ(submit("refused", refused).code(), StatusCode::kResourceExhausted);
  bench.engine->cancel("cancelled");
  bench.engine->step();
  EXPECT_EQ(cancelled.reason(), FinishReason::kAbort);
  bench.clock.advance_seconds(6);
  bench.engine->step();
  EXPECT_EQ(waiting.reason(), FinishReason::kError);
  EXPECT_FALSE(running.finish);
  bench.clock.advance_seconds(3);
  bench.engine->step();
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_GT(running.tokens.size(), 0u);
  EXPECT_EQ(bench.engine->stats().kv_tokens_used, 0);
}

// With priorities it is the scheduler that turns requests away.
TEST_P(EnginePauseTest, TheQueuesLimitHoldsMeanwhileWithPriorities) {
  EngineBench::Options limited = options();
  limited.max_queued_requests = 2;
  limited.scheduling.enable_priority = true;
  limited.scheduling.default_priority = 0;
  EngineBench bench(limited);  // eight rows
  bench.engine->pause(PauseMode::kAbort, [](const Status&) {});
  bench.engine->step();
  std::vector<Heard> heard(7);
  for (size_t i = 0; i < heard.size(); ++i) {
    Request request = EngineBench::request(fmt::format("{}", i));
    if (i == 6) request.priority = 5;
    ASSERT_TRUE(bench.submit(std::move(request), heard[i]).ok());
    bench.engine->step();
  }
  EXPECT_EQ(bench.engine->stats().num_waiting, 2);
  for (const size_t i : {2u, 3u, 4u, 5u}) {
    ASSERT_EQ(heard[i].reason(), FinishReason::kError) << i;
    EXPECT_THAT(heard[i].finish->error.message(),
                HasSubstr("2 requests are waiting, max_queued_requests = 2"));
  }
  EXPECT_THAT(heard[1].finish->error.message(), HasSubstr("displaced"));
  bench.engine->resume([](const Status&) {});
  while (bench.engine->step()) {
  }
  for (const size_t i : {0u, 6u}) EXPECT_EQ(heard[i].reason(), FinishReason::kLength) << i;
}

TEST_P(EnginePauseTest, RetractingForAPauseCountsAsNothing) {
  Asked asked;
  ask(asked, "one", 50, 20);
  steps(6);
  pause(PauseMode::kRetract);
  resume();
  finish();
  EXPECT_EQ(asked.heard.tokens, answer_to(asked.request));
  EXPECT_THAT(bench_.engine->metrics_text(),
              HasSubstr("heddle_retractions_total{model_name=\"fake\"} 0"));
}

TEST_P(EnginePauseTest, APausedEngineIsNotStuck) {
  Asked asked;
  ask(asked, "one", 5, 20);
  steps(3);
  bench_.clock.advance_seconds(10);
  EXPECT_GE(bench_.engine->stats().last_step_seconds_ago, 10);
  pause(PauseMode::kInPlace);
  bench_.clock.advance_seconds(1000);
  EXPECT_EQ(bench_.engine->stats().last_step_seconds_ago, 0);
  bench_.engine->resume([](const Status&) {});
  steps(1);
  EXPECT_EQ(bench_.engine->stats().last_step_seconds_ago, 0);
  finish();
}

TEST_P(EnginePauseTest, DrainingEndsThePause) {
  Asked asked;
  ask(asked, "one", 5, 20);
  steps(3);
  pause(PauseMode::kInPlace);
  EXPECT_EQ(bench_.engine->drain(10), 0);
  EXPECT_EQ(asked.heard.tokens, answer_to(asked.request));
  Status status;
  bench_.engine->pause(PauseMode::kAbort, [&](Status said) { status = std::move(said); });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST_P(EnginePauseTest, WhoWaitsForThePauseHearsOfTheEngineEnding) {
  Status status;
  {
    EngineBench bench(options());
    bench.engine->pause(PauseMode::kAbort, [&](Status said) { status = std::move(said); });
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(Overlap, EnginePauseTest, ::testing::Bool());

// A pause waits for the step in flight, which may fail.
TEST(EnginePauseFailureTest, WhoWaitsForThePauseHearsOfAStepThatFails) {
  const std::function<Status(const request::BatchPlan&)> bad_steps[] = {
      [](const request::BatchPlan&) { return device_lost("the device is gone"); },
      [](const request::BatchPlan&) -> Status { throw std::bad_alloc(); },
  };
  for (const auto& bad_step : bad_steps) {
    for (const PauseMode mode : {PauseMode::kAbort, PauseMode::kRetract, PauseMode::kInPlace}) {
      EngineBench::Options options;
      options.scheduling.overlap = true;
      EngineBench bench(options);
      Heard running;
      ASSERT_TRUE(bench.submit(EngineBench::request("running", 3, 100), running).ok());
      for (int i = 0; i < 3; ++i) bench.engine->step();
      ASSERT_EQ(bench.runner->num_in_flight(), 1);
      std::vector<Status> heard;
      bench.engine->pause(mode, [&](Status status) { heard.push_back(std::move(status)); });
      bench.engine->resume([&](Status status) { heard.push_back(std::move(status)); });
      bench.runner->on_step = bad_step;
      bench.engine->step();
      ASSERT_EQ(heard.size(), 2) << "each of them once";
      for (const Status& status : heard) {
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.message(), HasSubstr("the engine has stopped"));
      }
      EXPECT_EQ(running.reason(), FinishReason::kError);
      EXPECT_FALSE(bench.engine->health().ok());
      EXPECT_FALSE(bench.engine->stats().paused);
      EXPECT_EQ(bench.engine->stats().kv_tokens_used, 0);
      bench.engine->pause(mode, [&](Status status) { heard.push_back(std::move(status)); });
      ASSERT_EQ(heard.size(), 3);
      EXPECT_THAT(heard[2].message(), HasSubstr("the engine has stopped"));
    }
  }
}

TEST(EngineDescriptionTest, SaysWhatTheEngineIsDoing) {
  EngineBench::Options options;
  options.scheduling.overlap = true;
  Heard first, second;
  EngineBench bench(options);
  ASSERT_TRUE(bench.submit(EngineBench::request("first", 5, 20), first).ok());
  bench.engine->step();
  bench.engine->step();
  bench.engine->step();
  bench.clock.advance_seconds(4);
  ASSERT_TRUE(bench.submit(EngineBench::request("second", 7, 9), second).ok());
  const std::string text = bench.engine->describe();
  EXPECT_THAT(text, HasSubstr("1 are in flight"));
  EXPECT_THAT(text, HasSubstr("a step of 1 sequences that decode"));
  EXPECT_THAT(text, HasSubstr("1 requests run and 0 wait;"));
  EXPECT_THAT(text, HasSubstr("1 requests have arrived and were not taken yet"));
  EXPECT_THAT(text, HasSubstr("request \"first\": 5 prompt tokens, at most 20 new ones, came 4.0"));
  EXPECT_THAT(text, HasSubstr("request \"second\": 7 prompt tokens, at most 9 new ones, came 0.0"));
}

}  // namespace
}  // namespace heddle::engine
