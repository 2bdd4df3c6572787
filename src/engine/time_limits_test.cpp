// SPDX-License-Identifier: Apache-2.0
// What becomes of requests whose time is up: refused while they have nothing to show, cut short
// with what they have afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_test_bench.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;

EngineBench::Options with_limits(double queue_seconds, double running_seconds) {
  EngineBench::Options options;
  options.scheduling.queue_timeout_seconds = queue_seconds;
  options.scheduling.running_timeout_seconds = running_seconds;
  return options;
}

Request with_deadline(double seconds) {
  Request request = EngineBench::request("late", 3, 100);
  request.deadline_seconds = seconds;
  return request;
}

TEST(TimeLimitsTest, ARunningRequestPastItsDeadlineKeepsItsText) {
  EngineBench bench;
  bench.script({'H', 'i', '!', '?'});
  Heard heard;
  ASSERT_TRUE(bench.submit(with_deadline(2), heard).ok());
  bench.engine->step();
  bench.engine->step();
  bench.clock.advance_seconds(2);
  bench.engine->step();
  EXPECT_FALSE(heard.finish) << "just in time";
  bench.clock.advance_seconds(0.1);
  EXPECT_FALSE(bench.engine->step());
  bench.engine->check_invariants();
  EXPECT_EQ(heard.reason(), FinishReason::kAbort);
  EXPECT_EQ(heard.text, "Hi!");
  EXPECT_EQ(heard.last.completion_tokens, 3);
  EXPECT_EQ(heard.finish->error.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(heard.finish->error.message(), HasSubstr("deadline_exceeded: "));
  EXPECT_EQ(bench.engine->stats().kv_tokens_used, 0);
}

TEST(TimeLimitsTest, SoDoesOneThatRunsTooLong) {
  EngineBench bench(with_limits(0, 5));
  bench.script({'H', 'i', '!', '?'});
  Heard heard;
  ASSERT_TRUE(bench.submit(EngineBench::request("long", 3, 100), heard).ok());
  bench.clock.advance_seconds(100);  // nothing limits the wait
  bench.engine->step();
  bench.clock.advance_seconds(5.1);
  EXPECT_FALSE(bench.engine->step());
  EXPECT_EQ(heard.reason(), FinishReason::kAbort);
  EXPECT_EQ(heard.text, "H");
  EXPECT_THAT(heard.finish->error.message(), HasSubstr("running_timeout: "));
}

TEST(TimeLimitsTest, TextThatWasHeldBackForAStopIsGivenOut) {
  EngineBench bench;
  bench.script({'E', 'N', 'x'});
  Request request = with_deadline(2);
  request.stop.texts = {"END"};
  Heard heard;
  ASSERT_TRUE(bench.submit(request, heard).ok());
  bench.engine->step();
  bench.engine->step();
  EXPECT_EQ(heard.text, "");
  bench.clock.advance_seconds(3);
  bench.engine->step();
  EXPECT_EQ(heard.reason(), FinishReason::kAbort);
  EXPECT_EQ(heard.text, "EN");
}

TEST(TimeLimitsTest, WithoutATokenYetItIsAnError) {
  EngineBench::Options options = with_limits(5, 0);
  options.sizes.max_step_sequences = 1;
  EngineBench bench(options);
  Heard running;
  Heard waiting;
  Heard prefilling;
  ASSERT_TRUE(bench.submit(EngineBench::request("running", 3, 20), running).ok());
  ASSERT_TRUE(bench.submit(EngineBench::request("waiting", 3, 20), waiting).ok());
  bench.engine->step();
  bench.clock.advance_seconds(6);
  while (bench.engine->step()) {
  }
  EXPECT_EQ(running.reason(), FinishReason::kLength);
  EXPECT_EQ(waiting.reason(), FinishReason::kError);
  EXPECT_THAT(waiting.finish->error.message(), HasSubstr("queue_timeout: "));

  Request request = EngineBench::request("prefilling", 100, 20);  // four chunks
  request.deadline_seconds = 2;
  ASSERT_TRUE(bench.submit(request, prefilling).ok());
  bench.engine->step();
  bench.clock.advance_seconds(3);
  EXPECT_FALSE(bench.engine->step());
  EXPECT_EQ(prefilling.reason(), FinishReason::kError);
  EXPECT_THAT(prefilling.finish->error.message(), HasSubstr("deadline_exceeded: "));
}

// The step in flight computes for nobody, and a retracted sequence has its tokens still.
TEST(TimeLimitsTest, TheTextStaysWhateverTheSequenceIsUpTo) {
  for (const bool overlap : {false, true}) {
    EngineBench::Options options;
    options.scheduling.overlap = overlap;
    options.scheduling.conservativeness = 0.01;
    options.sizes.num_pages = 9;  // of four tokens: room for nearly two of them
    EngineBench bench(options);
    Heard first;
    Heard second;
    ASSERT_TRUE(bench.submit(EngineBench::request("first", 4, 16), first).ok());
    Request request = EngineBench::request("second", 4, 16);
    request.deadline_seconds = 2;
    ASSERT_TRUE(bench.submit(request, second).ok());
    while (bench.engine->stats().num_waiting == 0 || second.tokens.empty()) {
      ASSERT_TRUE(bench.engine->step());
    }
    const std::string text = second.text;
    bench.clock.advance_seconds(3);
    while (bench.engine->step()) bench.engine->check_invariants();
    EXPECT_EQ(second.reason(), FinishReason::kAbort);
    EXPECT_EQ(second.text, text);
    EXPECT_EQ(first.reason(), FinishReason::kLength);
    EXPECT_EQ(bench.engine->stats().kv_tokens_used, 0);
  }
}

TEST(TimeLimitsTest, TheLimitIsCounted) {
  EngineBench bench(with_limits(0, 5));
  Heard heard;
  ASSERT_TRUE(bench.submit(EngineBench::request("long", 3, 100), heard).ok());
  bench.engine->step();
  bench.clock.advance_seconds(6);
  bench.engine->step();
  const std::string metrics = bench.engine->metrics_text();
  EXPECT_THAT(metrics, HasSubstr(R"(refused_total{model_name="fake",reason="running_timeout"} 1)"));
  EXPECT_THAT(metrics, HasSubstr(R"(finished_total{model_name="fake",reason="abort"} 1)"));
}

}  // namespace
}  // namespace heddle::engine
