// SPDX-License-Identifier: Apache-2.0
// What the engine counts while requests run.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_loop.h"
#include "engine/engine_test_bench.h"
#include "support/exposition.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;

testing::Exposition metrics_of(const EngineBench& bench) {
  return testing::parse_exposition(bench.engine->metrics_text());
}

TEST(EngineMetricsTest, EveryMetricIsThereFromTheStart) {
  const EngineBench bench;
  const auto text = metrics_of(bench);
  EXPECT_GT(text.types.size(), 40u);
  for (const auto& [name, type] : text.types) {
    EXPECT_EQ(name.rfind("heddle_", 0), 0u) << name;
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
  }
  for (const auto& [series, value] : text.values) {
    EXPECT_THAT(series, HasSubstr(R"(model_name="fake")"));
  }
  EXPECT_EQ(text.value("heddle_kv_capacity_tokens"), 1024);
  EXPECT_EQ(text.value("heddle_requests_total"), 0);
}

TEST(EngineMetricsTest, RequestsAreCountedAsTheyRun) {
  EngineBench bench;
  Heard first;
  Heard second;
  ASSERT_TRUE(bench.submit(EngineBench::request("a", 10, 4), first).ok());
  ASSERT_TRUE(bench.submit(EngineBench::request("bb", 7, 3), second).ok());
  bench.script({1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(bench.engine->step());
  auto text = metrics_of(bench);
  EXPECT_EQ(text.value("heddle_running_requests") + text.value("heddle_waiting_requests"), 2);
  while (bench.engine->step()) bench.clock.advance_seconds(0.01);

  text = metrics_of(bench);
  EXPECT_EQ(text.value("heddle_running_requests"), 0);
  EXPECT_EQ(text.value("heddle_requests_total"), 2);
  EXPECT_EQ(text.value("heddle_requests_finished_total", {R"(reason="length")"}), 2);
  EXPECT_EQ(text.value("heddle_requests_finished_total", {R"(reason="stop")"}), 0);
  EXPECT_EQ(text.value("heddle_prompt_tokens_total"), 17);
  EXPECT_EQ(text.value("heddle_generation_tokens_total"), 7);
  EXPECT_EQ(text.value("heddle_realtime_tokens_total", {R"(mode="prefill_compute")"}), 17);
  EXPECT_EQ(text.value("heddle_queue_time_seconds_count"), 2);
  EXPECT_EQ(text.value("heddle_time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(text.value("heddle_inter_token_latency_seconds_count"), 5);
  EXPECT_GT(text.value("heddle_inter_token_latency_seconds_sum"), 0);
  EXPECT_EQ(text.value("heddle_request_latency_seconds_count"), 2);
  EXPECT_GE(text.value("heddle_plan_seconds_count"), 1);
  EXPECT_EQ(text.value("heddle_step_seconds_count", {R"(kind="prefill")"}) +
                text.value("heddle_step_seconds_count", {R"(kind="decode")"}) +
                text.value("heddle_step_seconds_count", {R"(kind="mixed")"}),
            bench.engine->stats().steps);
}

TEST(EngineMetricsTest, TheOldestOfTheQueueShowsItsAge) {
  EngineBench bench({.sizes = one_row()});
  const auto age = [&bench] { return metrics_of(bench).value("heddle_queue_oldest_age_seconds"); };
  Heard heard[3];
  const auto submit = [&](const char* id, Heard& to) {
    Request request = EngineBench::request(id, 3, 50);
    request.stop.ignore_eos = true;
    ASSERT_TRUE(bench.submit(std::move(request), to).ok());
  };
  submit("runs", heard[0]);
  bench.engine->step();
  bench.clock.advance_seconds(5);
  bench.engine->step();
  EXPECT_EQ(age(), 0) << "nobody waits";
  submit("first", heard[1]);
  bench.clock.advance_seconds(2);
  submit("second", heard[2]);
  bench.clock.advance_seconds(1);
  bench.engine->step();
  EXPECT_EQ(age(), 3);
  bench.engine->cancel("first");
  bench.engine->step();
  EXPECT_EQ(age(), 1);
  bench.engine->cancel("runs");
  while (bench.engine->step()) {
  }
  EXPECT_EQ(age(), 0);
}

TEST(EngineMetricsTest, TheCacheShowsInItsCounters) {
  EngineBench bench;
  bench.script({1, 2, 3, 4, 5, 6});
  const Request request = EngineBench::request("a", 200, 4);
  bench.run(request);
  EXPECT_EQ(metrics_of(bench).value("heddle_cached_tokens_total"), 0);
  EXPECT_GT(metrics_of(bench).value("heddle_kv_cached_tokens"), 0);
  const Heard again = bench.run(request);
  ASSERT_GT(again.last.cached_tokens, 0);
  const auto text = metrics_of(bench);
  EXPECT_EQ(text.value("heddle_cached_tokens_total"), again.last.cached_tokens);
  EXPECT_EQ(text.value("heddle_realtime_tokens_total", {R"(mode="prefill_cache")"}),
            again.last.cached_tokens);
  EXPECT_EQ(text.value("heddle_cache_matched_tokens_total"), again.last.cache.matched_tokens);
  int64_t lost = 0;
  for (const char* cause : {"eviction", "missing_state", "grid", "last_token"}) {
    lost += static_cast<int64_t>(
        text.value("heddle_cache_lost_tokens_total", {fmt::format(R"(cause="{}")", cause)}));
  }
  EXPECT_EQ(lost, again.last.cache.matched_tokens - again.last.cache.reused_tokens);
  EXPECT_EQ(text.value("heddle_cache_ghost_hits_total"), 0);
  EXPECT_GT(text.value("heddle_snapshots_published_total"), 0);
}

// Three prompts by turns, of which the pool of 1,024 tokens holds two.
TEST(EngineMetricsTest, WhatMoreMemoryWouldHaveSavedIsCounted) {
  EngineBench bench;
  bench.script(std::vector<TokenId>(20, 1));
  const auto serve = [&](TokenId which) {
    Request request = EngineBench::request("a", 450, 1);
    for (TokenId& token : request.prompt) token = (token + which) % 256;
    return bench.run(request).last.cache.lost.eviction;
  };
  EXPECT_EQ(serve(0) + serve(1) + serve(2), 0);
  const int64_t lost = serve(0);
  EXPECT_GT(lost, 0);
  const auto text = metrics_of(bench);
  EXPECT_EQ(text.value("heddle_cache_ghost_hits_total"), 1);
  EXPECT_EQ(text.value("heddle_cache_lost_tokens_total", {R"(cause="eviction")"}), lost);
}

TEST(EngineMetricsTest, SharedPagesAreLockedWhileTheyAreRead) {
  EngineBench bench;
  bench.script(std::vector<TokenId>(20, 1));
  bench.run(EngineBench::request("a", 200, 1));
  EXPECT_EQ(metrics_of(bench).value("heddle_kv_locked_tokens"), 0);
  Heard heard;
  ASSERT_TRUE(bench.submit(EngineBench::request("b", 200, 8), heard).ok());
  ASSERT_TRUE(bench.engine->step());
  const auto text = metrics_of(bench);
  EXPECT_GT(text.value("heddle_kv_locked_tokens"), 0);
  EXPECT_LE(text.value("heddle_kv_locked_tokens"), text.value("heddle_kv_used_tokens"));
  while (bench.engine->step()) {
  }
  EXPECT_EQ(metrics_of(bench).value("heddle_kv_locked_tokens"), 0);
}

TEST(EngineMetricsTest, TheRateOfDecodingIsThatOfTheLastFortySteps) {
  EngineBench bench;
  bench.runner->script = [&bench](const request::PlannedSequence&) -> std::optional<TokenId> {
    bench.clock.advance_seconds(0.01);  // a step takes so long
    return 7;
  };
  Heard heard;
  ASSERT_TRUE(bench.submit(EngineBench::request("a", 10, 60), heard).ok());
  for (int step = 0; step < 30; ++step) ASSERT_TRUE(bench.engine->step());
  EXPECT_EQ(metrics_of(bench).value("heddle_decode_tokens_per_second"), 0);
  while (bench.engine->step()) {
  }
  EXPECT_NEAR(metrics_of(bench).value("heddle_decode_tokens_per_second"), 100, 1);
}

TEST(EngineMetricsTest, EndsThatAreNoAnswersHaveAReason) {
  EngineBench::Options options;
  options.sizes = one_row();
  options.max_queued_requests = 1;
  EngineBench bench(options);
  Heard running, waiting;
  ASSERT_TRUE(bench.submit(EngineBench::request("a", 10, 100), running).ok());
  ASSERT_TRUE(bench.submit(EngineBench::request("c", 10, 1), waiting).ok());
  Heard refused;
  EXPECT_FALSE(bench.submit(EngineBench::request("b"), refused).ok());
  bench.engine->cancel("a");
  while (bench.engine->step()) {
  }
  const auto text = metrics_of(bench);
  EXPECT_EQ(text.value("heddle_requests_refused_total", {R"(reason="queue_full")"}), 1);
  EXPECT_EQ(text.value("heddle_requests_aborted_total"), 1);
  EXPECT_EQ(text.value("heddle_requests_finished_total", {R"(reason="abort")"}), 1);
}

TEST(EngineMetricsTest, GoByTheNamesOfOthersOrNotAtAll) {
  EngineBench::Options options;
  options.metrics.names = "sglang";
  options.metrics.model_name = "served \"name\"";
  const EngineBench foreign(options);
  const auto text = metrics_of(foreign);
  for (const char* name :
       {"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage",
        "sglang:cache_hit_rate", "sglang:gen_throughput", "sglang:prompt_tokens_total",
        "sglang:time_to_first_token_seconds", "sglang:e2e_request_latency_seconds"}) {
    EXPECT_TRUE(text.types.contains(name)) << name;
  }
  EXPECT_THAT(foreign.engine->metrics_text(), HasSubstr(R"(model_name="served \"name\"")"));
  options.metrics.enabled = false;
  EXPECT_EQ(EngineBench(options).engine->metrics_text(), "");
}

TEST(EngineClearCacheTest, ClearsAtOnceWhenNothingRuns) {
  EngineBench bench;
  bench.script({1, 2, 3});
  const Request request = EngineBench::request("a", 200, 4);
  bench.run(request);
  ASSERT_GT(metrics_of(bench).value("heddle_kv_cached_tokens"), 0);
  std::vector<Status> told;
  bench.engine->clear_cache(0, [&](Status status) { told.push_back(std::move(status)); });
  bench.engine->step();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].ok()) << told[0].to_string();
  EXPECT_EQ(metrics_of(bench).value("heddle_kv_cached_tokens"), 0);
  EXPECT_EQ(bench.run(request).last.cached_tokens, 0);
}

TEST(EngineClearCacheTest, WaitsNoLongerThanItMay) {
  EngineBench bench;
  bench.script(std::vector<TokenId>(50, 7));
  Heard heard;
  ASSERT_TRUE(bench.submit(EngineBench::request("a", 10, 20), heard).ok());
  ASSERT_TRUE(bench.engine->step());
  std::vector<std::string> told;
  const auto tell = [&told](std::string who) {
    return [&told, who = std::move(who)](const Status& status) {
      told.push_back(who + " " + std::string(to_string(status.code())));
    };
  };
  bench.engine->clear_cache(0, tell("now"));
  bench.engine->clear_cache(1, tell("soon"));
  bench.engine->clear_cache(1000, tell("later"));
  ASSERT_TRUE(bench.engine->step());
  EXPECT_THAT(told, ::testing::ElementsAre("now DEADLINE_EXCEEDED"));
  bench.clock.advance_seconds(2);
  ASSERT_TRUE(bench.engine->step());
  EXPECT_EQ(told.back(), "soon DEADLINE_EXCEEDED");
  while (bench.engine->step()) {
  }
  bench.engine->step();
  EXPECT_EQ(told.back(), "later OK");
  bench.engine->drain(0);
  bench.engine->clear_cache(1000, tell("too late"));
  EXPECT_EQ(told.back(), "too late UNAVAILABLE");
}

TEST(EngineControlTest, ACallTooManyIsRefusedAsBusyAndNotAsAShutdown) {
  std::vector<Status> clears;  // outlive the engine, which answers everything at its end
  std::vector<Status> pauses;
  Heard heard;
  EngineBench bench;
  bench.script(std::vector<TokenId>(50, 7));
  ASSERT_TRUE(bench.submit(EngineBench::request("a", 10, 20), heard).ok());
  ASSERT_TRUE(bench.engine->step());
  for (int i = 0; i < 65; ++i) {
    bench.engine->clear_cache(1000, [&](const Status& status) { clears.push_back(status); });
    bench.engine->resume([&](const Status& status) { pauses.push_back(status); });
  }
  for (const auto& refused : {clears, pauses}) {
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused[0].message(), ::testing::StartsWith("control_queue_full: 64 "));
  }
}

}  // namespace
}  // namespace heddle::engine
