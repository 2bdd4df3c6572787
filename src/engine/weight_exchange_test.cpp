// SPDX-License-Identifier: Apache-2.0
// Through the engine: no answer is of two sets of weights, and nothing changes when an update
// fails.
#include "engine/weight_exchange.h"

#include <atomic>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Which tokens the weights of a folder draw.
TokenId token_of(const std::string& folder) { return folder.empty() ? 'o' : folder[0]; }

class WeightExchangeTest : public ::testing::TestWithParam<bool> {
 protected:
  WeightExchangeTest() { draw_by_weights(fixture_); }

  static EngineFixture::Options options() {
    EngineFixture::Options options;
    options.scheduling.overlap = GetParam();
    options.sizes.num_state_slots = 0;  // what is cached is found without a snapshot
    return options;
  }

  static void draw_by_weights(EngineFixture& fixture) {
    fixture.runner->script = [runner = fixture.runner](const request::PlannedSequence&,
                                                       int64_t) -> std::optional<TokenId> {
      return token_of(runner->weights);
    };
  }

  Request request(const char* id, int64_t max_new_tokens = 20) {
    Request request = EngineFixture::request(id, 40, max_new_tokens);
    request.stop.ignore_eos = true;
    return request;
  }

  void ask(const char* id, Received& received) {
    const Status status = fixture_.submit(request(id), received);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      fixture_.engine->step();
      fixture_.engine->check_invariants();
    }
  }

  void finish() {
    while (fixture_.engine->step()) fixture_.engine->check_invariants();
    EXPECT_THAT(fixture_.runner->complaints(), IsEmpty());
    EXPECT_EQ(fixture_.engine->stats().kv_tokens_used, 0);
  }

  // The answer of an update, once there is one.
  struct Answer {
    std::optional<Result<WeightsUpdated>> result;
    int64_t count = 0;

    [[nodiscard]] bool ok() const { return result && result->ok(); }

    [[nodiscard]] Status status() const { return result ? result->status() : Status(); }
  };

  void update(const WeightUpdate& update, Answer& answer) {
    fixture_.engine->update_weights(update, [&answer](Result<WeightsUpdated> result) {
      answer.result = std::move(result);
      ++answer.count;
    });
  }

  void pause(PauseMode mode) {
    fixture_.engine->pause(mode, [](const Status& status) { EXPECT_TRUE(status.ok()); });
    steps(1);
  }

  void resume() {
    fixture_.engine->resume([](const Status& status) { EXPECT_TRUE(status.ok()); });
  }

  static void expect_all_of(const Received& received, const std::string& folder,
                            int64_t num_updates) {
    EXPECT_EQ(received.reason(), FinishReason::kLength);
    EXPECT_THAT(received.tokens, Each(token_of(folder)));
    EXPECT_EQ(std::ssize(received.tokens), 20);
    EXPECT_EQ(received.last.num_weight_updates, num_updates);
  }

  EngineFixture fixture_{options()};
};

TEST_P(WeightExchangeTest, AnIdleEngineTakesThemAtOnce) {
  Received before, again, after;
  ask("same", before);
  finish();
  ask("same", again);
  finish();
  EXPECT_GT(again.last.cached_tokens, 0);
  Answer answer;
  update({.model_dir = "new"}, answer);
  steps(1);
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ((*answer.result)->num_paused_requests, 0);
  EXPECT_EQ((*answer.result)->num_weight_updates, 1);
  EXPECT_FALSE(fixture_.engine->stats().paused);
  ask("same", after);
  finish();
  expect_all_of(before, "", 0);
  expect_all_of(again, "", 0);
  expect_all_of(after, "new", 1);
  EXPECT_EQ(after.last.cached_tokens, 0);
  EXPECT_EQ(answer.count, 1);
  EXPECT_THAT(fixture_.engine->metrics_text(),
              HasSubstr("heddle_weight_updates_total{model_name=\"fake\"} 1"));
}

TEST_P(WeightExchangeTest, EarlierRequestsEndWithTheOldWeightsAndLaterOnesWait) {
  EngineFixture::Options one = options();
  one.sizes = one_batch_slot();
  EngineFixture fixture(one);
  draw_by_weights(fixture);
  Received running, waiting, late;
  const auto submit = [&](const char* id, Received& received) {
    ASSERT_TRUE(fixture.submit(request(id), received).ok());
  };
  submit("running", running);
  for (int i = 0; i < 4; ++i) fixture.engine->step();
  submit("waiting", waiting);
  bool updated = false;
  fixture.engine->update_weights({.model_dir = "new"}, [&](const Result<WeightsUpdated>& result) {
    EXPECT_TRUE(result.ok());
    EXPECT_TRUE(running.finish && waiting.finish);
    EXPECT_EQ(late.num_events, 0);
    updated = true;
  });
  fixture.engine->step();
  EXPECT_FALSE(updated);
  submit("late", late);
  fixture.engine->step();
  EXPECT_EQ(fixture.engine->stats().num_waiting, 2);
  while (fixture.engine->step()) fixture.engine->check_invariants();
  EXPECT_TRUE(updated);
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
  expect_all_of(running, "", 0);
  expect_all_of(waiting, "", 0);
  expect_all_of(late, "new", 1);
}

TEST_P(WeightExchangeTest, AbortsRunningRequestsWhenAsked) {
  Received running, late;
  ask("running", running);
  steps(4);
  Answer answer;
  update({.model_dir = "new", .abort_all_requests = true}, answer);
  steps(1);
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_GT(running.tokens.size(), 0u);
  EXPECT_EQ(running.num_finishes, 1);
  ask("late", late);
  finish();
  expect_all_of(late, "new", 1);
}

TEST_P(WeightExchangeTest, ABadCheckpointChangesNothing) {
  fixture_.runner->on_read_weights = [](const runner::WeightFolder& folder,
                                        const std::atomic<bool>&) -> Status {
    if (folder.model_dir == "throws") throw std::bad_alloc();
    return data_loss("model.safetensors is cut");
  };
  Received running;
  ask("running", running);
  steps(4);
  for (const char* folder : {"broken", "throws"}) {
    Answer answer;
    update({.model_dir = folder, .abort_all_requests = true}, answer);
    steps(2);
    ASSERT_EQ(answer.count, 1);
    EXPECT_THAT(answer.status().message(),
                AllOf(HasSubstr("the weights in use stay"), HasSubstr(folder)));
    EXPECT_EQ(answer.status().code(), folder == std::string("broken")
                                          ? StatusCode::kDataLoss
                                          : StatusCode::kResourceExhausted);
  }
  Received late;
  ask("late", late);
  finish();
  expect_all_of(running, "", 0);
  expect_all_of(late, "", 0);
  EXPECT_TRUE(fixture_.engine->health().ok());
  EXPECT_EQ(fixture_.runner->weights, "");
}

TEST_P(WeightExchangeTest, PausedRequestsContinueWithTheNewWeights) {
  for (const PauseMode mode : {PauseMode::kRetract, PauseMode::kInPlace}) {
    EngineFixture fixture(options());
    draw_by_weights(fixture);
    Received kept;
    ASSERT_TRUE(fixture.submit(request("kept"), kept).ok());
    for (int i = 0; i < 6; ++i) fixture.engine->step();
    fixture.engine->pause(mode, [](const Status&) {});
    fixture.engine->step();
    const size_t drawn = kept.tokens.size();
    ASSERT_GT(drawn, 0u);
    std::optional<int64_t> num_paused;
    fixture.engine->update_weights({.model_dir = "new"}, [&](const Result<WeightsUpdated>& result) {
      num_paused = result->num_paused_requests;
    });
    fixture.engine->step();
    EXPECT_EQ(num_paused, 1);
    EXPECT_TRUE(fixture.engine->stats().paused) << "it goes on when it is told to";
    EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0) << "nothing is left of the old weights";
    fixture.engine->resume([](const Status&) {});
    while (fixture.engine->step()) fixture.engine->check_invariants();
    EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
    ASSERT_EQ(kept.tokens.size(), 20u);
    for (size_t i = 0; i < kept.tokens.size(); ++i) {
      EXPECT_EQ(kept.tokens[i], token_of(i < drawn ? "" : "new")) << i;
    }
    EXPECT_EQ(kept.last.num_weight_updates, 1);
  }
}

TEST_P(WeightExchangeTest, TheCacheIsKeptWhereThatIsAskedFor) {
  Received kept, again;
  ask("kept", kept);
  steps(6);
  pause(PauseMode::kInPlace);
  const int64_t used = fixture_.engine->stats().kv_tokens_used;
  ASSERT_GT(used, 0);
  Answer answer;
  update({.model_dir = "new", .flush_cache = false}, answer);
  steps(1);
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(fixture_.engine->stats().kv_tokens_used, used);
  resume();
  finish();
  EXPECT_EQ(kept.tokens.size(), 20u);
  ask("kept", again);
  finish();
  EXPECT_GT(again.last.cached_tokens, 0);
}

TEST_P(WeightExchangeTest, AnExactEngineDoesNotKeepTheCache) {
  EngineFixture::Options exact = options();
  exact.exact = true;
  EngineFixture fixture(exact);
  Status status;
  fixture.engine->update_weights(
      {.model_dir = "new", .flush_cache = false},
      [&](const Result<WeightsUpdated>& result) { status = result.status(); });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("flush_cache is false"), HasSubstr("flush it")));
}

TEST_P(WeightExchangeTest, AnEngineCanBePausedFromThenOn) {
  Received running, late;
  ask("running", running);
  steps(4);
  Answer answer;
  update({.model_dir = "new", .pause_after = true}, answer);
  steps(1);
  ask("late", late);
  for (int i = 0; i < 100 && !answer.result; ++i) steps(1);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(fixture_.engine->stats().paused);
  steps(3);
  EXPECT_EQ(late.num_events, 0);
  resume();
  finish();
  expect_all_of(running, "", 0);
  expect_all_of(late, "new", 1);
}

TEST_P(WeightExchangeTest, APauseDuringTheWaitEndsIt) {
  Received running, late;
  ask("running", running);
  steps(4);
  Answer answer;
  update({.model_dir = "new"}, answer);
  steps(1);
  ask("late", late);
  steps(1);
  ASSERT_EQ(answer.count, 0);
  pause(PauseMode::kRetract);
  steps(1);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ((*answer.result)->num_paused_requests, 2);
  resume();
  finish();
  EXPECT_EQ(running.tokens.front(), token_of(""));
  EXPECT_EQ(running.tokens.back(), token_of("new"));
  expect_all_of(late, "new", 1);
}

TEST_P(WeightExchangeTest, RequestsWaitingForNewWeightsCanBeCancelledAndTimeOut) {
  EngineFixture::Options limited = options();
  limited.scheduling.queue_timeout_seconds = 5;
  EngineFixture fixture(limited);
  draw_by_weights(fixture);
  Received running, cancelled, timed;
  ASSERT_TRUE(fixture.submit(request("running", 100), running).ok());
  for (int i = 0; i < 4; ++i) fixture.engine->step();
  bool updated = false;
  fixture.engine->update_weights({.model_dir = "new"},
                                 [&](const Result<WeightsUpdated>&) { updated = true; });
  fixture.engine->step();
  ASSERT_TRUE(fixture.submit(request("cancelled"), cancelled).ok());
  ASSERT_TRUE(fixture.submit(request("timed"), timed).ok());
  fixture.engine->step();
  fixture.engine->cancel("cancelled");
  fixture.engine->step();
  EXPECT_EQ(cancelled.reason(), FinishReason::kAbort);
  fixture.clock.advance_seconds(6);
  fixture.engine->step();
  EXPECT_EQ(timed.reason(), FinishReason::kError);
  EXPECT_FALSE(running.finish);
  EXPECT_FALSE(updated);
  fixture.engine->cancel("running");
  while (fixture.engine->step()) fixture.engine->check_invariants();
  EXPECT_TRUE(updated);
}

// The last request with the old weights runs out of time while one waits for the new ones.
TEST_P(WeightExchangeTest, TheWaitAlsoEndsWhenTheLastRequestIsDropped) {
  EngineFixture::Options limited = options();
  EngineFixture fixture(limited);
  draw_by_weights(fixture);
  Received running, late;
  Request timed = request("running", 100);
  timed.deadline_seconds = 5;
  ASSERT_TRUE(fixture.submit(std::move(timed), running).ok());
  for (int i = 0; i < 4; ++i) fixture.engine->step();
  bool updated = false;
  fixture.engine->update_weights({.model_dir = "new"},
                                 [&](const Result<WeightsUpdated>&) { updated = true; });
  fixture.engine->step();
  ASSERT_TRUE(fixture.submit(request("late"), late).ok());
  fixture.engine->step();
  fixture.clock.advance_seconds(6);
  while (fixture.engine->step()) fixture.engine->check_invariants();
  EXPECT_EQ(running.reason(), FinishReason::kAbort);
  EXPECT_TRUE(updated);
  EXPECT_TRUE(fixture.engine->health().ok());
  expect_all_of(late, "new", 1);
}

TEST_P(WeightExchangeTest, OneUpdateGoesOnAtATime) {
  Received running;
  ask("running", running);
  steps(4);
  Answer first, second, third;
  update({.model_dir = "new"}, first);
  steps(1);
  update({.model_dir = "other"}, second);
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(second.status().message(), HasSubstr("another update of the weights goes on"));
  finish();
  EXPECT_TRUE(first.ok());
  update({.model_dir = "other"}, third);
  steps(1);
  EXPECT_TRUE(third.ok());
  EXPECT_EQ(fixture_.runner->weights, "other");
}

TEST_P(WeightExchangeTest, ADrainEndsTheRequestsThatWait) {
  Received running, late;
  ask("running", running);
  steps(4);
  Answer answer, refused;
  update({.model_dir = "new"}, answer);
  steps(1);
  ask("late", late);
  EXPECT_EQ(fixture_.engine->drain(10), 0);
  EXPECT_TRUE(answer.ok());
  expect_all_of(late, "new", 1);
  update({.model_dir = "other"}, refused);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
}

TEST_P(WeightExchangeTest, AnUpdateIsAnsweredWhenTheEngineEndsOrFails) {
  Status ended, failed;
  {
    EngineFixture fixture(options());
    fixture.engine->update_weights({.model_dir = "new"}, [&](const Result<WeightsUpdated>& result) {
      ended = result.status();
    });
  }
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable);
  Received running;
  ask("running", running);
  steps(4);
  Answer answer;
  update({.model_dir = "new"}, answer);
  steps(1);
  ASSERT_EQ(answer.count, 0);
  fixture_.runner->on_step = [](const request::BatchPlan&) { return device_lost("gone"); };
  steps(3);
  EXPECT_EQ(answer.count, 1);
  EXPECT_EQ(answer.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(answer.status().message(), HasSubstr("the engine has stopped"));
}

INSTANTIATE_TEST_SUITE_P(Overlap, WeightExchangeTest, ::testing::Bool());

// Weights are read on a thread of their own while requests run, and an engine that ends does not
// wait until they are read.
TEST(EngineUpdateThreadTest, RequestsRunWhileWeightsAreRead) {
  EngineFixture::Options options;
  options.drive = Drive::kThread;
  std::atomic<bool> may_read = false;
  std::atomic<int> num_answers = 0;
  Received received;
  {
    EngineFixture fixture(options);
    fixture.runner->on_read_weights = [&](const runner::WeightFolder& folder,
                                          const std::atomic<bool>& cancelled) -> Status {
      while (!may_read && !cancelled) std::this_thread::yield();
      return folder.model_dir == "endless" ? heddle::cancelled("given up") : Status();
    };
    const auto run = [&](const char* id) {
      std::atomic<bool> done = false;
      int64_t num_updates = -1;
      ASSERT_TRUE(fixture.engine
                      ->submit(EngineFixture::request(id),
                               [&](const RequestEvent& event) {
                                 num_updates = event.num_weight_updates;
                                 if (event.finish) done = true;
                               })
                      .ok());
      while (!done) std::this_thread::yield();
      EXPECT_EQ(num_updates, may_read ? 1 : 0);
    };
    std::atomic<bool> updated = false;
    fixture.engine->update_weights({.model_dir = "new"}, [&](const Result<WeightsUpdated>& result) {
      EXPECT_TRUE(result.ok());
      ++num_answers;
      updated = true;
    });
    run("before");
    run("also before");
    EXPECT_FALSE(updated);
    may_read = true;
    while (!updated) std::this_thread::yield();
    run("after");
    may_read = false;
    fixture.engine->update_weights({.model_dir = "endless"},
                                   [&](const Result<WeightsUpdated>& result) {
                                     EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
                                     ++num_answers;
                                   });
    EXPECT_EQ(fixture.engine->drain(10), 0);
    while (num_answers < 2) std::this_thread::yield();  // while an answer is outstanding
  }
  EXPECT_EQ(num_answers, 2);
}

}  // namespace
}  // namespace heddle::engine
