// SPDX-License-Identifier: Apache-2.0
// The loop with its thread and several clients at once. Also run under the thread sanitizer.
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/mutex.h"
#include "engine/engine_fixture.h"
#include "engine/engine_loop.h"

namespace heddle::engine {
namespace {

using ::testing::IsEmpty;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals

constexpr auto kLongEnough = 20s;  // for a loaded machine under a sanitizer

// A callback's record that another thread waits for.
class Waiter {
 public:
  Engine::EventCallback callback() {
    return [this](const RequestEvent& event) {
      const MutexLock lock(mutex_);
      received_.take(event);
      changed_.notify_all();
    };
  }

  // Waits for the end of the request.
  Received wait() {
    const MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(mutex_, kLongEnough, [this]() HEDDLE_REQUIRES(mutex_) {
      return received_.finish.has_value();
    }));
    return received_;
  }

  void wait_for_tokens(int64_t count) {
    const MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(mutex_, kLongEnough, [&]() HEDDLE_REQUIRES(mutex_) {
      return std::ssize(received_.tokens) >= count;
    }));
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  Received received_ HEDDLE_GUARDED_BY(mutex_);
};

EngineFixture::Options threaded() {
  EngineFixture::Options options;
  options.drive = Drive::kThread;
  options.scheduling.overlap = true;
  return options;
}

TEST(EngineThreadTest, AnswersARequest) {
  EngineFixture fixture(threaded());
  Waiter waiter;
  ASSERT_TRUE(fixture.engine->submit(EngineFixture::request("one", 5, 7), waiter.callback()).ok());
  EXPECT_EQ(std::ssize(waiter.wait().tokens), 7);
}

TEST(EngineThreadTest, AnswersManyClientsThatAlsoCancel) {
  EngineFixture::Options options = threaded();
  options.sizes.num_pages = 40;  // tight: retractions happen
  options.context_length = 120;
  EngineFixture fixture(options);
  std::atomic<int64_t> accepted = 0;
  std::atomic<int64_t> finished = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<unsigned>(client));
      for (int i = 0; i < 60; ++i) {
        const std::string id = fmt::format("{}/{}", client, i);
        const Request request = EngineFixture::request(id, 1 + static_cast<int64_t>(random() % 40),
                                                       static_cast<int64_t>(random() % 60));
        Waiter waiter;
        if (!fixture.engine->submit(request, waiter.callback()).ok()) continue;
        ++accepted;
        if (random() % 3 == 0) fixture.engine->cancel(id);
        (void)fixture.engine->stats();
        const Received received = waiter.wait();
        finished += received.num_finishes;
        if (received.reason() == FinishReason::kLength) {
          EXPECT_EQ(std::ssize(received.tokens), request.stop.max_new_tokens);
        }
        std::vector<TokenId> tokens = request.prompt;
        for (const TokenId token : received.tokens) {
          ASSERT_EQ(token, testing::FakeRunner::next_token(tokens));
          tokens.push_back(token);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(accepted, finished);
  EXPECT_GT(accepted, 200);
  EXPECT_EQ(fixture.engine->drain(10), 0);
  EXPECT_THAT(fixture.runner->complaints(), IsEmpty());
  EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0);
}

TEST(EngineThreadTest, SleepsWhenIdle) {
  EngineFixture fixture(threaded());
  Waiter waiter;
  ASSERT_TRUE(fixture.engine->submit(EngineFixture::request("one"), waiter.callback()).ok());
  waiter.wait();
  std::promise<Status> idle;  // answered when the step behind the request's last one has ended, too
  fixture.engine->clear_cache(60, [&](Status status) { idle.set_value(std::move(status)); });
  ASSERT_TRUE(idle.get_future().get().ok());
  const int64_t before = fixture.engine->num_rounds();
  constexpr int kCalls = 100;
  for (int i = 0; i < kCalls; ++i) {
    std::promise<void> answered;
    fixture.engine->inspect({}, [&](const Result<Inspection>&) { answered.set_value(); });
    answered.get_future().wait();
  }
  EXPECT_EQ(fixture.engine->num_rounds() - before, kCalls) << "a round for each call and no others";
}

TEST(EngineThreadTest, DrainWaitsForRequestsAndRefusesNewOnes) {
  EngineFixture fixture(threaded());
  std::vector<Waiter> waiters(20);
  for (size_t i = 0; i < waiters.size(); ++i) {
    ASSERT_TRUE(
        fixture.engine
            ->submit(EngineFixture::request(fmt::format("{}", i), 3, 30), waiters[i].callback())
            .ok());
  }
  EXPECT_EQ(fixture.engine->drain(60), 0);
  for (Waiter& waiter : waiters) EXPECT_EQ(waiter.wait().reason(), FinishReason::kLength);
  Waiter late;
  EXPECT_EQ(fixture.engine->submit(EngineFixture::request("late"), late.callback()).code(),
            StatusCode::kUnavailable);
}

TEST(EngineThreadTest, DrainAbortsTheRestAtItsTimeout) {
  std::latch decoding(1);
  EngineFixture fixture(threaded());
  int num_steps = 0;  // the engine thread's
  fixture.runner->on_step = [&](const request::BatchPlan&) {
    if (++num_steps != 4) return Status();
    decoding.count_down();
    while (fixture.engine->describe().find("a drain ran out of time") == std::string::npos) {
      std::this_thread::yield();
    }
    return Status();
  };
  std::vector<Waiter> waiters(12);  // more than can run at once
  for (size_t i = 0; i < waiters.size(); ++i) {
    ASSERT_TRUE(
        fixture.engine
            ->submit(EngineFixture::request(fmt::format("{}", i), 3, 500), waiters[i].callback())
            .ok());
  }
  decoding.wait();
  EXPECT_EQ(fixture.engine->drain(0), 12);
  for (Waiter& waiter : waiters) EXPECT_EQ(waiter.wait().reason(), FinishReason::kAbort);
}

TEST(EngineThreadTest, AbortsEverythingWhenDestroyed) {
  std::vector<Waiter> waiters(12);
  {
    EngineFixture fixture(threaded());
    for (size_t i = 0; i < waiters.size(); ++i) {
      ASSERT_TRUE(
          fixture.engine
              ->submit(EngineFixture::request(fmt::format("{}", i), 3, 500), waiters[i].callback())
              .ok());
    }
    waiters[0].wait_for_tokens(1);
  }
  for (Waiter& waiter : waiters) EXPECT_NE(waiter.wait().reason(), FinishReason::kError);
}

TEST(EngineThreadTest, CallbacksMaySubmitAndCancel) {
  EngineFixture fixture(threaded());
  Waiter last, cancelled;
  std::atomic<int> chain = 0;
  ASSERT_TRUE(
      fixture.engine->submit(EngineFixture::request("victim", 3, 500), cancelled.callback()).ok());
  std::function<void(const RequestEvent&)> next = [&](const RequestEvent& event) {
    if (!event.finish) return;
    if (++chain < 10) {
      EXPECT_TRUE(fixture.engine->submit(EngineFixture::request("chain", 3, 2), next).ok());
    } else {
      fixture.engine->cancel("victim");
      EXPECT_TRUE(
          fixture.engine->submit(EngineFixture::request("last", 3, 2), last.callback()).ok());
    }
  };
  ASSERT_TRUE(fixture.engine->submit(EngineFixture::request("chain", 3, 2), next).ok());
  EXPECT_EQ(last.wait().reason(), FinishReason::kLength);
  const FinishReason reason = cancelled.wait().reason();
  EXPECT_TRUE(reason == FinishReason::kAbort || reason == FinishReason::kLength);
}

TEST(EngineThreadTest, PausesAndResumes) {
  EngineFixture fixture(threaded());
  Waiter running, late;
  ASSERT_TRUE(
      fixture.engine->submit(EngineFixture::request("running", 3, 300), running.callback()).ok());
  running.wait_for_tokens(2);
  const auto answer_to = [](auto ask) {
    std::promise<Status> promise;
    ask([&promise](Status status) { promise.set_value(std::move(status)); });
    return promise.get_future().get();
  };
  EXPECT_TRUE(answer_to([&](auto done) { fixture.engine->pause(PauseMode::kRetract, done); }).ok());
  EXPECT_EQ(fixture.engine->stats().num_running, 0);
  EXPECT_TRUE(answer_to([&](auto done) { fixture.engine->clear_cache(0, done); }).ok());
  ASSERT_TRUE(fixture.engine->submit(EngineFixture::request("late", 3, 5), late.callback()).ok());
  EXPECT_TRUE(answer_to([&](auto done) { fixture.engine->pause(PauseMode::kInPlace, done); }).ok());
  EXPECT_TRUE(answer_to([&](auto done) { fixture.engine->resume(done); }).ok());
  EXPECT_EQ(running.wait().reason(), FinishReason::kLength);
  EXPECT_EQ(late.wait().reason(), FinishReason::kLength);
}

TEST(EngineThreadTest, TheWatchdogReportsAStepThatDoesNotEnd) {
  std::promise<void> stuck;
  EngineFixture::Options options = threaded();
  options.watchdog_seconds = 0.05;
  options.on_stuck = [&stuck, reported = std::make_shared<std::once_flag>()] {
    std::call_once(*reported, [&stuck] { stuck.set_value(); });
  };
  EngineFixture fixture(options);
  std::promise<void> unplugged;
  fixture.runner->on_step = [wait = unplugged.get_future().share()](const request::BatchPlan&) {
    wait.wait();
    return Status();
  };
  Waiter waiter;
  ASSERT_TRUE(fixture.engine->submit(EngineFixture::request("one", 3, 5), waiter.callback()).ok());
  stuck.get_future().wait();
  EXPECT_NE(fixture.engine->describe().find("request \"one\""), std::string::npos);
  unplugged.set_value();
  EXPECT_EQ(waiter.wait().reason(), FinishReason::kLength);
}

TEST(EngineThreadTest, AFailedStepReachesEveryClient) {
  std::latch broken(1);
  EngineFixture fixture(threaded());
  int num_steps = 0;  // the engine thread's
  fixture.runner->on_step = [&](const request::BatchPlan&) {
    if (++num_steps < 4) return Status();
    broken.wait();
    return device_lost("unplugged");
  };
  std::vector<Waiter> waiters(12);
  for (size_t i = 0; i < waiters.size(); ++i) {
    ASSERT_TRUE(
        fixture.engine
            ->submit(EngineFixture::request(fmt::format("{}", i), 3, 500), waiters[i].callback())
            .ok());
  }
  waiters[0].wait_for_tokens(1);
  broken.count_down();
  for (Waiter& waiter : waiters) {
    const Received received = waiter.wait();
    EXPECT_EQ(received.reason(), FinishReason::kError);
    EXPECT_EQ(received.finish->error.code(), StatusCode::kDeviceLost);
  }
  EXPECT_EQ(fixture.engine->health().code(), StatusCode::kDeviceLost);
  EXPECT_EQ(fixture.engine->drain(10), 0);
}

}  // namespace
}  // namespace heddle::engine
