// SPDX-License-Identifier: Apache-2.0
// Requests that run out of time: refused before their first token, cut short after it.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;

EngineFixture::Options with_limits(double queue_seconds, double running_seconds) {
  EngineFixture::Options options;
  options.scheduling.queue_timeout_seconds = queue_seconds;
  options.scheduling.running_timeout_seconds = running_seconds;
  return options;
}

Request with_deadline(double seconds) {
  Request request = EngineFixture::request("late", 3, 100);
  request.deadline_seconds = seconds;
  return request;
}

TEST(TimeLimitsTest, ARunningRequestPastItsDeadlineKeepsItsText) {
  EngineFixture fixture;
  fixture.script({'H', 'i', '!', '?'});
  Received received;
  ASSERT_TRUE(fixture.submit(with_deadline(2), received).ok());
  fixture.engine->step();
  fixture.engine->step();
  fixture.clock.advance_seconds(2);
  fixture.engine->step();
  EXPECT_FALSE(received.finish) << "just in time";
  fixture.clock.advance_seconds(0.1);
  EXPECT_FALSE(fixture.engine->step());
  fixture.engine->check_invariants();
  EXPECT_EQ(received.reason(), FinishReason::kAbort);
  EXPECT_EQ(received.text, "Hi!");
  EXPECT_EQ(received.last.completion_tokens, 3);
  EXPECT_EQ(received.finish->error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(received.finish->error.message(), HasSubstr("deadline_exceeded: "));
  EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0);
}

TEST(TimeLimitsTest, ARequestThatRunsTooLongKeepsItsText) {
  EngineFixture fixture(with_limits(0, 5));
  fixture.script({'H', 'i', '!', '?'});
  Received received;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("long", 3, 100), received).ok());
  fixture.clock.advance_seconds(100);  // nothing limits the wait
  fixture.engine->step();
  fixture.clock.advance_seconds(5.1);
  EXPECT_FALSE(fixture.engine->step());
  EXPECT_EQ(received.reason(), FinishReason::kAbort);
  EXPECT_EQ(received.text, "H");
  EXPECT_THAT(received.finish->error.message(), HasSubstr("running_timeout: "));
}

TEST(TimeLimitsTest, TextHeldBackForAStopIsDelivered) {
  EngineFixture fixture;
  fixture.script({'E', 'N', 'x'});
  Request request = with_deadline(2);
  request.stop.texts = {"END"};
  Received received;
  ASSERT_TRUE(fixture.submit(request, received).ok());
  fixture.engine->step();
  fixture.engine->step();
  EXPECT_EQ(received.text, "");
  fixture.clock.advance_seconds(3);
  fixture.engine->step();
  EXPECT_EQ(received.reason(), FinishReason::kAbort);
  EXPECT_EQ(received.text, "EN");
}

TEST(TimeLimitsTest, ARequestWithoutATokenEndsWithAnError) {
  EngineFixture::Options options = with_limits(5, 0);
  options.sizes.max_sequences = 1;
  EngineFixture fixture(options);
  Received running;
  Received waiting;
  Received prefilling;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("running", 3, 20), running).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("waiting", 3, 20), waiting).ok());
  fixture.engine->step();
  fixture.clock.advance_seconds(6);
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(running.reason(), FinishReason::kLength);
  EXPECT_EQ(waiting.reason(), FinishReason::kError);
  EXPECT_THAT(waiting.finish->error.message(), HasSubstr("queue_timeout: "));

  Request request = EngineFixture::request("prefilling", 100, 20);  // four chunks
  request.deadline_seconds = 2;
  ASSERT_TRUE(fixture.submit(request, prefilling).ok());
  fixture.engine->step();
  fixture.clock.advance_seconds(3);
  EXPECT_FALSE(fixture.engine->step());
  EXPECT_EQ(prefilling.reason(), FinishReason::kError);
  EXPECT_THAT(prefilling.finish->error.message(), HasSubstr("deadline_exceeded: "));
}

// Also when a step in flight still computes for the request, or it was retracted.
TEST(TimeLimitsTest, TextIsKeptInOverlappedStepsAndAfterRetraction) {
  for (const bool overlap : {false, true}) {
    EngineFixture::Options options;
    options.scheduling.overlap = overlap;
    options.scheduling.conservativeness = 0.01;
    options.sizes.num_pages = 9;  // of four tokens: room for nearly two of them
    EngineFixture fixture(options);
    // Letters: of other bytes a part of a character may be kept back.
    fixture.runner->script = [](const request::PlannedSequence&, int64_t num_drawn) {
      return std::optional(static_cast<TokenId>('a' + num_drawn));
    };
    Received first;
    Received second;
    ASSERT_TRUE(fixture.submit(EngineFixture::request("first", 4, 16), first).ok());
    Request request = EngineFixture::request("second", 4, 16);
    request.deadline_seconds = 2;
    ASSERT_TRUE(fixture.submit(request, second).ok());
    while (fixture.engine->stats().num_waiting == 0 || second.tokens.empty()) {
      ASSERT_TRUE(fixture.engine->step());
    }
    const std::string text = second.text;
    fixture.clock.advance_seconds(3);
    while (fixture.engine->step()) fixture.engine->check_invariants();
    EXPECT_EQ(second.reason(), FinishReason::kAbort);
    EXPECT_EQ(second.text, text);
    EXPECT_EQ(first.reason(), FinishReason::kLength);
    EXPECT_EQ(fixture.engine->stats().kv_tokens_used, 0);
  }
}

TEST(TimeLimitsTest, TheLimitIsCounted) {
  EngineFixture fixture(with_limits(0, 5));
  Received received;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("long", 3, 100), received).ok());
  fixture.engine->step();
  fixture.clock.advance_seconds(6);
  fixture.engine->step();
  const std::string metrics = fixture.engine->metrics_text();
  EXPECT_THAT(metrics, HasSubstr(R"(refused_total{model_name="fake",reason="running_timeout"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"(finished_total{model_name="fake",reason="abort"} 1)"));
}

}  // namespace
}  // namespace heddle::engine
