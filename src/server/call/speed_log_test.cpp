// SPDX-License-Identifier: Apache-2.0
#include "server/call/speed_log.h"

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

RequestEvent end_of(int64_t prompt, int64_t cached, int64_t completion, double first,
                    double elapsed) {
  RequestEvent event;
  event.prompt_tokens = prompt;
  event.cached_tokens = cached;
  event.completion_tokens = completion;
  event.first_token_seconds = first;
  event.elapsed_seconds = elapsed;
  return event;
}

TEST(CallSpeed, CountsFromTheFirstToken) {
  CallSpeed speed;
  speed.add(end_of(19, 16, 121, 0.5, 2.5), true);
  EXPECT_EQ(speed.to_string(), "19 + 121 tokens, 16 cached, first after 500 ms, 60 tokens/s");
}

TEST(CallSpeed, AddsUpAnswersAndCountsAPromptOnce) {
  CallSpeed speed;
  speed.add(end_of(10, 0, 11, 0.25, 1.25), true);
  speed.add(end_of(10, 0, 31, 0.5, 2.25), false);
  EXPECT_EQ(speed.to_string(), "10 + 42 tokens, first after 250 ms, 20 tokens/s");
}

TEST(CallSpeed, LeavesOutWhatThereWasNoneOf) {
  CallSpeed none;
  none.add(end_of(7, 0, 0, 0, 0.1), true);
  EXPECT_EQ(none.to_string(), "7 + 0 tokens");
  CallSpeed one;
  one.add(end_of(7, 0, 1, 0.125, 0.125), true);
  EXPECT_EQ(one.to_string(), "7 + 1 tokens, first after 125 ms");
  CallSpeed at_once;  // all tokens in one step
  at_once.add(end_of(7, 0, 4, 0.125, 0.125), true);
  EXPECT_EQ(at_once.to_string(), "7 + 4 tokens, first after 125 ms");
}

TEST(SpeedSummary, IsOfTheTimeSinceTheLastAndNoneWhileNothingHappens) {
  SpeedSummary summary;
  EngineStats stats;
  EXPECT_FALSE(summary.next(stats, 1000, 10).has_value());
  stats.steps = 5;
  stats.num_running = 3;
  stats.num_waiting = 1;
  stats.prompt_tokens = 5120;
  stats.output_tokens = 700;
  stats.kv_tokens_used = 120;
  EXPECT_EQ(summary.next(stats, 1000, 10),
            "3 running, 1 waiting; 512 prompt tokens/s, 70.0 generated tokens/s; 12% of the KV "
            "cache in use");
  EXPECT_FALSE(summary.next(stats, 1000, 10).has_value());
  stats.steps = 6;
  stats.output_tokens = 710;
  EXPECT_EQ(summary.next(stats, 0, 5),
            "3 running, 1 waiting; 0 prompt tokens/s, 2.0 generated tokens/s; 0% of the KV cache "
            "in use");
}

}  // namespace
}  // namespace heddle::server
