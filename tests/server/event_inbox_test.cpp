// SPDX-License-Identifier: Apache-2.0
#include "server/call/event_inbox.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/mutex.h"
#include "server/call/generation.h"
#include "server/fake_engine.h"
#include "server/http/captured_exchange.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;

// Notes the events that reach it: "0 Hello" for a text of the first answer.
class NotingAdapter final : public ApiAdapter {
 public:
  std::vector<std::string> seen;
  std::function<void(const std::string& text)> before;  // each is noted; may be empty

  void event(size_t choice, const RequestEvent& event, std::string&) override {
    if (before) before(event.text);
    seen.push_back(fmt::format("{} {}", choice, event.text));
  }

  void end(std::string&) override {}

  JsonPieces body() override { return {}; }
};

// An inbox whose I/O thread is the test: it runs the turns.
class EventInboxTest : public ::testing::Test {
 protected:
  static constexpr size_t kAnswers = 4;  // of the call

  void push(size_t choice, std::string text) {
    RequestEvent event;
    event.text = std::move(text);
    inbox_.push(generation_, choice, std::move(event));
  }

  [[nodiscard]] size_t num_turns() {
    const MutexLock lock(mutex_);
    return turns_.size();
  }

  // There is one.
  void run_turn() {
    std::function<void()> turn;
    {
      const MutexLock lock(mutex_);
      turn = std::move(turns_.front());
      turns_.pop_front();
    }
    turn();
  }

  // One after the other until there is none.
  void run_turns() {
    while (num_turns() > 0) run_turn();
  }

  const std::shared_ptr<NotingAdapter> adapter_ = std::make_shared<NotingAdapter>();

 private:
  [[nodiscard]] PreparedCall call() const {
    PreparedCall call;
    call.id = "call";
    call.stream = true;  // so that every event is written as it comes
    call.requests.resize(kAnswers);
    call.adapter = adapter_;
    return call;
  }

  Mutex mutex_;
  std::deque<std::function<void()>> turns_ HEDDLE_GUARDED_BY(mutex_);
  EventInbox inbox_{[this](std::function<void()> turn) {
    const MutexLock lock(mutex_);
    turns_.push_back(std::move(turn));
  }};
  FakeEngine engine_;
  GenerationHost host_{.engine = &engine_, .inbox = &inbox_};
  const std::shared_ptr<Generation> generation_ = std::make_shared<Generation>(
      host_, std::make_shared<CapturedExchange>(HttpRequest(), nullptr), call());
};

TEST_F(EventInboxTest, TheEventsOfAStepComeWithOneWakeUp) {
  push(0, "a");
  push(1, "b");
  push(0, "c");
  ASSERT_EQ(num_turns(), 1u);
  EXPECT_TRUE(adapter_->seen.empty()) << "they wait for the I/O thread";
  run_turns();
  EXPECT_THAT(adapter_->seen, ElementsAre("0 a", "1 b", "0 c"));

  push(2, "d");
  ASSERT_EQ(num_turns(), 1u) << "the next step wakes it again";
  run_turns();
  EXPECT_EQ(adapter_->seen.back(), "2 d");
}

TEST_F(EventInboxTest, AnEventThatComesDuringATurnFollowsTheOthers) {
  adapter_->before = [this](const std::string& text) {
    if (text == "a") push(1, "meanwhile");
  };
  push(0, "a");
  push(0, "b");
  run_turns();
  EXPECT_THAT(adapter_->seen, ElementsAre("0 a", "0 b", "1 meanwhile"));
}

TEST_F(EventInboxTest, SlowEventsLeaveTheIoThreadItsTurnsBetweenThem) {
  // Longer than a turn may last.
  adapter_->before = [](const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(6));
  };
  for (const char* const text : {"a", "b", "c"}) push(0, text);
  while (num_turns() > 0) {
    const size_t before = adapter_->seen.size();
    run_turn();
    EXPECT_LE(adapter_->seen.size(), before + 1);
    if (before == 0 && adapter_->seen.size() == 1) push(3, "later");
    EXPECT_LE(num_turns(), 1u);
  }
  EXPECT_THAT(adapter_->seen, ElementsAre("0 a", "0 b", "0 c", "3 later"));
}

TEST_F(EventInboxTest, AnEventThatCannotBeDeliveredIsLostAlone) {
  adapter_->before = [](const std::string& text) {
    if (text == "b") throw std::bad_alloc();
  };
  for (const char* const text : {"a", "b", "c"}) push(0, text);
  EXPECT_THROW(run_turns(), std::bad_alloc);
  run_turns();
  EXPECT_THAT(adapter_->seen, ElementsAre("0 a", "0 c"));
}

TEST_F(EventInboxTest, EveryEventOfManyThreadsArrivesInItsThreadsOrder) {
  constexpr size_t kEvents = 2000;  // of each thread, which has an answer of its own
  std::atomic<size_t> num_done = 0;
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kAnswers; ++thread) {
    threads.emplace_back([this, thread, &num_done] {
      for (size_t i = 0; i < kEvents; ++i) push(thread, std::to_string(i));
      ++num_done;
    });
  }
  while (num_done < kAnswers) {
    EXPECT_LE(num_turns(), 1u);
    run_turns();
  }
  for (std::thread& thread : threads) thread.join();
  run_turns();
  EXPECT_EQ(adapter_->seen.size(), kAnswers * kEvents);
  std::vector<size_t> next(kAnswers, 0);
  for (const std::string& event : adapter_->seen) {
    const size_t thread = std::stoul(event);
    EXPECT_EQ(event, fmt::format("{} {}", thread, next[thread]++));
  }
}

}  // namespace
}  // namespace heddle::server
