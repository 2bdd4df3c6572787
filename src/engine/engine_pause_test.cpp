// SPDX-License-Identifier: Apache-2.0
// Pausing and resuming: no answer changes, and nothing is computed in between.
#include <new>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

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
  static EngineFixture::Options options() {
    EngineFixture::Options options;
    options.scheduling.overlap = GetParam();
    return options;
  }

  // A request with an id and a record of its own.
  struct Asked {
    Request request;
    Received received;
  };

  void ask(Asked& asked, const char* id, int64_t prompt_tokens, int64_t max_new_tokens) {
    asked.request = EngineFixture::request(id, prompt_tokens, max_new_tokens);
    asked.request.stop.ignore_eos = true;
    const Status status = fixture_.submit(asked.request, asked.received);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      fixture_.engine->step();
      fixture_.engine->check_invariants();
    }
  }

  // The engine has done it when this returns.
  void pause(PauseMode mode) {
    int64_t done = 0;
    fixture_.engine->pause(mode, [&](const Status& status) { done += status.ok() ? 1 : 100; });
    EXPECT_EQ(done, 0);
    steps(1);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(fixture_.runner->num_in_flight(), 0);
    EXPECT_TRUE(fixture_.engine->stats().paused);
  }

  void resume() {
    int64_t done = 0;
    fixture_.engine->resume([&](const Status& status) { done += status.ok() ? 1 : 100; });
    steps(1);
    EXPECT_EQ(done, 1);
    EXPECT_FALSE(fixture_.engine->stats().paused);
  }

  void finish() {
    while (fixture_.engine->step()) fixture_.engine->check_invariants();
    EXPECT_THAT(fixture_.runner->complaints(), IsEmpty());
    EXPECT_EQ(fixture_.engine->stats().kv_tokens_used, 0);
  }

  EngineFixture fixture_{options()};
};

TEST_P(EnginePauseTest, RequestsPausedInPlaceContinueWhereTheyWere) {
  Asked decoding, prefilling, late;
  ask(decoding, "decoding", 5, 20);
  steps(4);
  ask(prefilling, "prefilling", 100, 5);  // four chunks
  steps(1);
  pause(PauseMode::kInPlace);
  const int64_t computed = fixture_.runner->num_steps();
  const size_t drawn = decoding.received.tokens.size();
  EXPECT_GT(fixture_.engine->stats().kv_tokens_used, 0);
  EXPECT_THAT(fixture_.engine->metrics_text(), HasSubstr("paused_requests{model_name=\"fake\"} 2"));
  ask(late, "late", 5, 3);
  steps(10);
  EXPECT_EQ(fixture_.runner->num_steps(), computed);
  EXPECT_EQ(decoding.received.tokens.size(), drawn);
  EXPECT_EQ(fixture_.engine->stats().num_waiting, 1);
  resume();
  finish();
  for (const Asked* asked : {&decoding, &prefilling, &late}) {
    EXPECT_EQ(asked->received.tokens, answer_to(asked->request));
    EXPECT_EQ(asked->received.num_finishes, 1);
  }
}

TEST_P(EnginePauseTest, RetractedRequestsOwnNothingAndContinueUnchanged) {
  Asked first, second;
  ask(first, "first", 50, 20);
  ask(second, "second", 5, 20);
  steps(6);
  pause(PauseMode::kRetract);
  const EngineStats stats = fixture_.engine->stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 2);
  EXPECT_EQ(stats.kv_tokens_used, 0);
  EXPECT_EQ(stats.state_slots_used, 0);
  Status cleared = internal_error("not yet");
  fixture_.engine->clear_cache(0, [&](Status status) { cleared = std::move(status); });
  steps(1);
  EXPECT_TRUE(cleared.ok()) << cleared.to_string();
  resume();
  finish();
  EXPECT_EQ(first.received.tokens, answer_to(first.request));
  EXPECT_EQ(second.received.tokens, answer_to(second.request));
}

TEST_P(EnginePauseTest, TheCacheIsInUseWhileRequestsArePausedInPlace) {
  Asked asked;
  ask(asked, "one", 5, 20);
  steps(3);
  pause(PauseMode::kInPlace);
  Status cleared;
  fixture_.engine->clear_cache(2, [&](Status status) { cleared = std::move(status); });
  steps(3);
  EXPECT_TRUE(cleared.ok()) << "not answered yet";
  fixture_.clock.advance_seconds(3);
  steps(1);
  EXPECT_EQ(cleared.code(), StatusCode::kDeadlineExceeded);
  pause(PauseMode::kRetract);  // a second pause
  fixture_.engine->clear_cache(0, [&](Status status) { cleared = std::move(status); });
  steps(1);
  EXPECT_TRUE(cleared.ok());
  resume();
  finish();
  EXPECT_EQ(asked.received.tokens, answer_to(asked.request));
}

TEST_P(EnginePauseTest, AbortedRequestsKeepTheirTextAndLaterOnesWait) {
  fixture_.script({'H', 'i', '!', '?', '.', ',', ';'});
  Asked running, waiting, late;
  ask(running, "running", 5, 20);
  steps(3);
  ask(waiting, "waiting", 5, 20);
  pause(PauseMode::kAbort);
  EXPECT_EQ(running.received.reason(), FinishReason::kAbort);
  EXPECT_TRUE(running.received.finish->error.ok());
  EXPECT_THAT(running.received.text, HasSubstr("Hi"));
  EXPECT_EQ(waiting.received.reason(), FinishReason::kAbort);
  ask(late, "late", 5, 3);
  steps(3);
  EXPECT_FALSE(late.received.finish);
  resume();
  finish();
  EXPECT_EQ(late.received.text, "Hi!");
}

TEST_P(EnginePauseTest, LimitsOfTimeAndQueueHoldDuringAPause) {
  EngineFixture::Options limited = options();
  limited.max_queued_requests = 2;
  limited.scheduling.queue_timeout_seconds = 5;
  EngineFixture fixture(limited);
  const auto submit = [&fixture](const char* id, Received& received, double deadline_seconds = 0) {
    Request request = EngineFixture::request(id, 3, 50);
    request.stop.ignore_eos = true;
    request.deadline_seconds = deadline_seconds;
    return fixture.submit(request, received);
  };
  Received running, waiting, cancelled, refused;
  ASSERT_TRUE(submit("running", running, 8).ok());
  for (int i = 0; i < 3; ++i) fixture.engine->step();
  fixture.engine->pause(PauseMode::kInPlace, [](const Status&) {});
  fixture.engine->step();
  ASSERT_TRUE(submit("waiting", waiting).ok());
  ASSERT_TRUE(submit("cancelled", cancelled).ok());
  fixture.engine->step();
  EXPECT_EQ(submit("refused", refused).code(), StatusCode::kResourceExhausted);
  fixture.engine->cancel("cancelled");
  fixture.engine->step();
  EXPECT_EQ(cancelled.reason(), FinishReason::kAbort);
  fixture.clock.advance_seconds(6);
  fixture.engine->step();
  EXPECT_EQ(waiting.reason(), FinishReason::kError);
  EXPECT_FALSE(running.finish);
  fixture.clock.advance_seconds(3);
  fixture.engine->step();
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_GT(running.tokens.size(), 0u);
  EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0);
}

// With priorities it is the scheduler that turns requests away.
TEST_P(EnginePauseTest, TheQueueLimitHoldsDuringAPauseWithPriorities) {
  EngineFixture::Options limited = options();
  limited.max_queued_requests = 2;
  limited.scheduling.enable_priority = true;
  limited.scheduling.default_priority = 0;
  EngineFixture fixture(limited);  // eight batch slots
  fixture.engine->pause(PauseMode::kAbort, [](const Status&) {});
  fixture.engine->step();
  std::vector<Received> received(7);
  for (size_t i = 0; i < received.size(); ++i) {
    Request request = EngineFixture::request(fmt::format("{}", i));
    if (i == 6) request.priority = 5;
    ASSERT_TRUE(fixture.submit(std::move(request), received[i]).ok());
    fixture.engine->step();
  }
  EXPECT_EQ(fixture.engine->stats().num_waiting, 2);
  for (const size_t i : {2u, 3u, 4u, 5u}) {
    ASSERT_EQ(received[i].reason(), FinishReason::kError) << i;
    EXPECT_THAT(received[i].finish->error.message(),
                HasSubstr("2 requests are waiting, max_queued_requests = 2"));
  }
  EXPECT_THAT(received[1].finish->error.message(), HasSubstr("displaced"));
  fixture.engine->resume([](const Status&) {});
  while (fixture.engine->step()) {
  }
  for (const size_t i : {0u, 6u}) EXPECT_EQ(received[i].reason(), FinishReason::kLength) << i;
}

TEST_P(EnginePauseTest, RetractionsForAPauseAreNotCounted) {
  Asked asked;
  ask(asked, "one", 50, 20);
  steps(6);
  pause(PauseMode::kRetract);
  resume();
  finish();
  EXPECT_EQ(asked.received.tokens, answer_to(asked.request));
  EXPECT_THAT(fixture_.engine->metrics_text(),
              HasSubstr("heddle_retractions_total{model_name=\"fake\"} 0"));
}

TEST_P(EnginePauseTest, APausedEngineIsNotStuck) {
  Asked asked;
  ask(asked, "one", 5, 20);
  steps(3);
  fixture_.clock.advance_seconds(10);
  EXPECT_GE(fixture_.engine->stats().last_step_seconds_ago, 10);
  pause(PauseMode::kInPlace);
  fixture_.clock.advance_seconds(1000);
  EXPECT_EQ(fixture_.engine->stats().last_step_seconds_ago, 0);
  fixture_.engine->resume([](const Status&) {});
  steps(1);
  EXPECT_EQ(fixture_.engine->stats().last_step_seconds_ago, 0);
  finish();
}

TEST_P(EnginePauseTest, DrainingEndsThePause) {
  Asked asked;
  ask(asked, "one", 5, 20);
  steps(3);
  pause(PauseMode::kInPlace);
  EXPECT_EQ(fixture_.engine->drain(10), 0);
  EXPECT_EQ(asked.received.tokens, answer_to(asked.request));
  Status status;
  fixture_.engine->pause(PauseMode::kAbort, [&](Status said) { status = std::move(said); });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST_P(EnginePauseTest, APauseCallIsAnsweredWhenTheEngineEnds) {
  Status status;
  {
    EngineFixture fixture(options());
    fixture.engine->pause(PauseMode::kAbort, [&](Status said) { status = std::move(said); });
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(Overlap, EnginePauseTest, ::testing::Bool());

// A pause waits for the step in flight, which may fail.
TEST(EnginePauseFailureTest, PauseCallsAreAnsweredWhenAStepFails) {
  const std::function<Status(const request::BatchPlan&)> bad_steps[] = {
      [](const request::BatchPlan&) { return device_lost("the device is gone"); },
      [](const request::BatchPlan&) -> Status { throw std::bad_alloc(); },
  };
  for (const auto& bad_step : bad_steps) {
    for (const PauseMode mode : {PauseMode::kAbort, PauseMode::kRetract, PauseMode::kInPlace}) {
      EngineFixture::Options options;
      options.scheduling.overlap = true;
      EngineFixture fixture(options);
      Received running;
      ASSERT_TRUE(fixture.submit(EngineFixture::request("running", 3, 100), running).ok());
      for (int i = 0; i < 3; ++i) fixture.engine->step();
      ASSERT_EQ(fixture.runner->num_in_flight(), 1);
      std::vector<Status> received;
      fixture.engine->pause(mode, [&](Status status) { received.push_back(std::move(status)); });
      fixture.engine->resume([&](Status status) { received.push_back(std::move(status)); });
      fixture.runner->on_step = bad_step;
      fixture.engine->step();
      ASSERT_EQ(received.size(), 2) << "each of them once";
      for (const Status& status : received) {
        EXPECT_EQ(status.code(), StatusCode::kUnavailable);
        EXPECT_THAT(status.message(), HasSubstr("the engine has stopped"));
      }
      EXPECT_EQ(running.reason(), FinishReason::kError);
      EXPECT_FALSE(fixture.engine->health().ok());
      EXPECT_FALSE(fixture.engine->stats().paused);
      EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0);
      fixture.engine->pause(mode, [&](Status status) { received.push_back(std::move(status)); });
      ASSERT_EQ(received.size(), 3);
      EXPECT_THAT(received[2].message(), HasSubstr("the engine has stopped"));
    }
  }
}

TEST(EngineDescriptionTest, NamesStepsInFlightAndRequests) {
  EngineFixture::Options options;
  options.scheduling.overlap = true;
  Received first, second;
  EngineFixture fixture(options);
  ASSERT_TRUE(fixture.submit(EngineFixture::request("first", 5, 20), first).ok());
  fixture.engine->step();
  fixture.engine->step();
  fixture.engine->step();
  fixture.clock.advance_seconds(4);
  ASSERT_TRUE(fixture.submit(EngineFixture::request("second", 7, 9), second).ok());
  const std::string text = fixture.engine->describe();
  EXPECT_THAT(text, HasSubstr("1 are in flight"));
  EXPECT_THAT(text, HasSubstr("a step of 1 sequences that decode"));
  EXPECT_THAT(text, HasSubstr("1 requests run and 0 wait;"));
  EXPECT_THAT(text, HasSubstr("1 requests have arrived and were not taken yet"));
  EXPECT_THAT(text, HasSubstr("request \"first\": 5 prompt tokens, at most 20 new ones, came 4.0"));
  EXPECT_THAT(text, HasSubstr("request \"second\": 7 prompt tokens, at most 9 new ones, came 0.0"));
}

}  // namespace
}  // namespace heddle::engine
