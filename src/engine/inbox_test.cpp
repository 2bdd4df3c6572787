// SPDX-License-Identifier: Apache-2.0
#include "engine/inbox.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduler_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class InboxTest : public ::testing::Test {
 protected:
  // One call with a request for each id.
  static Arrivals call_of(const std::vector<std::string>& ids) {
    Arrivals arrivals;
    for (const std::string& id : ids) arrivals.push_back(live_request(id, nullptr));
    return arrivals;
  }

  Status submit(const std::vector<std::string>& ids) { return inbox_.submit(call_of(ids)); }

  // The ids of the requests that are taken now.
  std::vector<std::string> take() {
    Mail mail;
    inbox_.take(mail);
    std::vector<std::string> ids;
    for (const auto& live : mail.arrivals) ids.push_back(live->sequence.request.id);
    return ids;
  }

  ManualClock clock_;
  Inbox inbox_{clock_, {.max_queued = 2, .num_batch_slots = 2}, /*random_seed=*/7};
};

TEST_F(InboxTest, NumbersRequestsInOrderAndKeepsTheRequestsOfACallTogether) {
  clock_.advance_seconds(5);
  ASSERT_TRUE(submit({"a"}).ok());
  ASSERT_TRUE(submit({"b", "c"}).ok());
  Mail mail;
  inbox_.take(mail);
  ASSERT_EQ(mail.arrivals.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(mail.arrivals[i]->sequence.id, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(mail.arrivals[i]->sequence.timings.submit_seconds, 5);
  }
  EXPECT_EQ(mail.arrivals[0]->call, 1);
  EXPECT_EQ(mail.arrivals[1]->call, 2);
  EXPECT_EQ(mail.arrivals[2]->call, 2);
  EXPECT_NE(mail.arrivals[0]->sequence.seed, mail.arrivals[1]->sequence.seed);
}

TEST_F(InboxTest, TakesAllRequestsOfACallOrNone) {
  ASSERT_TRUE(submit({"a"}).ok());
  EXPECT_THAT(submit({"b", "a"}).message(), HasSubstr("\"a\" is still running"));
  EXPECT_THAT(submit({"b", "b"}).message(), HasSubstr("\"b\" is still running"));
  EXPECT_EQ(submit({"b", "c", "d", "e"}).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(inbox_.load().num_unfinished, 1);
  EXPECT_TRUE(submit({"b"}).ok()) << "no refused call left its ids behind";
  EXPECT_THAT(take(), ElementsAre("a", "b"));
}

TEST_F(InboxTest, RefusesWhatFindsNeitherABatchSlotNorAPlaceInTheQueue) {
  ASSERT_TRUE(submit({"a", "b", "c", "d"}).ok()) << "two run, two wait";
  EXPECT_THAT(submit({"e"}).message(),
              HasSubstr("2 requests are waiting, max_queued_requests = 2"));
  take();
  EXPECT_EQ(submit({"e"}).code(), StatusCode::kResourceExhausted) << "taken, but still waiting";
  inbox_.show_queue(/*num_queued=*/2, /*num_free_slots=*/0);
  EXPECT_EQ(submit({"e"}).code(), StatusCode::kResourceExhausted);
  inbox_.show_queue(/*num_queued=*/1, /*num_free_slots=*/0);
  EXPECT_TRUE(submit({"e"}).ok());
  EXPECT_THAT(submit({"f"}).message(), HasSubstr("2 requests are waiting, "));
}

TEST_F(InboxTest, LimitsOnlyArrivalsWhenTheSchedulerDisplacesByPriority) {
  Inbox inbox(clock_, {.max_queued = 2, .num_batch_slots = 2, .by_priority = true}, 7);
  ASSERT_TRUE(inbox.submit(call_of({"a", "b", "c", "d"})).ok());
  EXPECT_EQ(inbox.submit(call_of({"e"})).code(), StatusCode::kResourceExhausted);
  Mail mail;
  inbox.take(mail);
  inbox.show_queue(/*num_queued=*/4, /*num_free_slots=*/0);
  EXPECT_TRUE(inbox.submit(call_of({"e"})).ok());
}

TEST_F(InboxTest, ACancellationIsTakenOnceAndOnlyForUnfinishedRequests) {
  ASSERT_TRUE(submit({"a", "b"}).ok());
  inbox_.cancel("b");
  inbox_.cancel("b");
  inbox_.cancel("nobody");
  Mail mail;
  inbox_.take(mail);
  EXPECT_THAT(mail.cancelled, ElementsAre(2));
  inbox_.release_id("a");
  inbox_.cancel("a");
  Mail later;
  inbox_.take(later);
  EXPECT_THAT(later.cancelled, IsEmpty());
  EXPECT_TRUE(submit({"a"}).ok()) << "its id may be used again";
}

TEST_F(InboxTest, MailOfARoundThatWasCutShortIsFinishedFirst) {
  ASSERT_TRUE(submit({"a"}).ok());
  Mail mail;
  inbox_.take(mail);
  ASSERT_TRUE(submit({"b"}).ok());
  inbox_.cancel("b");
  int64_t answers = 0;
  inbox_.pause({.mode = PauseMode::kAbort, .on_done = [&](const Status&) { ++answers; }});
  inbox_.take(mail);
  ASSERT_EQ(mail.arrivals.size(), 1u) << "not the later arrival";
  EXPECT_THAT(mail.cancelled, IsEmpty()) << "of an arrival that was not taken";
  EXPECT_EQ(mail.pauses.size(), 1u);
  mail.arrivals.clear();
  inbox_.take(mail);
  ASSERT_EQ(mail.arrivals.size(), 1u);
  EXPECT_THAT(mail.cancelled, ElementsAre(2));
}

TEST_F(InboxTest, RefusesEverythingAfterAFailureAndKeepsItsFirstReason) {
  EXPECT_TRUE(inbox_.closed().ok());
  inbox_.fail(device_lost("unplugged"));
  inbox_.fail(internal_error("and then this"));
  EXPECT_THAT(inbox_.failure().message(), HasSubstr("unplugged"));
  EXPECT_EQ(submit({"a"}).code(), StatusCode::kUnavailable);
  EXPECT_THAT(inbox_.closed().message(), HasSubstr("the engine has stopped: unplugged"));
  std::vector<StatusCode> answers;
  const auto on_done = [&](const Status& status) { answers.push_back(status.code()); };
  inbox_.pause({.mode = std::nullopt, .on_done = on_done});
  inbox_.clear_cache({.on_done = on_done});
  EXPECT_THAT(answers, ElementsAre(StatusCode::kUnavailable, StatusCode::kUnavailable));
}

TEST_F(InboxTest, PausesAndClearCallsHaveABound) {
  int64_t num_refused = 0;
  const auto on_done = [&](const Status& status) { num_refused += status.ok() ? 0 : 1; };
  for (int i = 0; i < 64; ++i) {
    inbox_.pause({.mode = PauseMode::kInPlace, .on_done = on_done});
    inbox_.clear_cache({.on_done = on_done});
  }
  EXPECT_EQ(num_refused, 0);
  inbox_.pause({.mode = PauseMode::kInPlace, .on_done = on_done});
  inbox_.clear_cache({.on_done = on_done});
  EXPECT_EQ(num_refused, 2);
  Mail mail;
  inbox_.take(mail);
  inbox_.pause({.mode = PauseMode::kInPlace, .on_done = on_done});
  EXPECT_EQ(num_refused, 2) << "those are with the engine thread";
  inbox_.clear_cache({.on_done = on_done});
  EXPECT_EQ(num_refused, 3) << "clear calls wait there until the engine is idle";
  inbox_.on_clears_answered(1);
  inbox_.clear_cache({.on_done = on_done});
  EXPECT_EQ(num_refused, 3);
}

TEST_F(InboxTest, TheEngineThreadSleepsUntilThereIsMail) {
  std::thread client([this] { EXPECT_TRUE(submit({"a"}).ok()); });
  const Inbox::Orders orders = inbox_.wait(Inbox::Sleep::kLong);
  EXPECT_FALSE(orders.stop);
  client.join();
  EXPECT_THAT(take(), ElementsAre("a"));
  inbox_.wait(Inbox::Sleep::kShort);  // returns although there is no mail
  inbox_.wait(Inbox::Sleep::kNone);
  inbox_.stop();
  EXPECT_TRUE(inbox_.wait(Inbox::Sleep::kLong).stop);
}

TEST_F(InboxTest, ADrainEndsThePauseAndWaitsForTheLastRequest) {
  ASSERT_TRUE(submit({"a"}).ok());
  inbox_.begin_drain();
  EXPECT_THAT(submit({"b"}).message(), HasSubstr("shutting down"));
  Mail mail;
  inbox_.take(mail);
  ASSERT_EQ(mail.pauses.size(), 1u);
  EXPECT_FALSE(mail.pauses[0].mode);
  std::thread engine([this] { inbox_.on_ended(1, 0); });
  EXPECT_EQ(inbox_.finish_drain(1000), 0);
  engine.join();
}

TEST_F(InboxTest, ADrainThatRunsOutOfTimeHasTheRestAborted) {
  ASSERT_TRUE(submit({"a", "b", "c"}).ok());
  take();
  inbox_.begin_drain();
  std::thread engine([this] {
    inbox_.on_ended(1, 0);
    while (inbox_.describe().find("a drain ran out of time") == std::string::npos) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(inbox_.wait(Inbox::Sleep::kNone).abort_all);
    EXPECT_FALSE(inbox_.wait(Inbox::Sleep::kNone).abort_all) << "said once";
    inbox_.on_ended(2, 2);
  });
  EXPECT_EQ(inbox_.finish_drain(0), 2);
  engine.join();
  EXPECT_EQ(inbox_.finish_drain(0), 0);
}

TEST_F(InboxTest, TheLoadCountsFromTheFirstUnfinishedRequest) {
  clock_.advance_seconds(10);
  ASSERT_TRUE(submit({"a"}).ok());
  clock_.advance_seconds(10);
  ASSERT_TRUE(submit({"b"}).ok());
  EXPECT_EQ(inbox_.load().num_arrivals, 2);
  EXPECT_EQ(inbox_.load().busy_since, 10);
  take();
  inbox_.on_ended(2, 0);
  EXPECT_EQ(inbox_.load().num_arrivals, 0);
  EXPECT_EQ(inbox_.load().num_unfinished, 0);
  clock_.advance_seconds(10);
  ASSERT_TRUE(submit({"c"}).ok());
  EXPECT_EQ(inbox_.load().busy_since, 30);
}

TEST_F(InboxTest, DescribesUnfinishedRequestsOldestFirst) {
  ASSERT_TRUE(submit({"first", "second"}).ok());
  clock_.advance_seconds(4);
  const std::string text = inbox_.describe();
  EXPECT_THAT(text, HasSubstr("2 requests have arrived"));
  EXPECT_LT(text.find("\"first\": 3 prompt tokens, at most 4 new ones, came 4.0 s ago"),
            text.find("\"second\""));
  inbox_.release_id("first");
  EXPECT_THAT(inbox_.describe(), Not(HasSubstr("first")));
}

}  // namespace
}  // namespace heddle::engine
