// SPDX-License-Identifier: Apache-2.0
// The engine's counters while requests run.
#include "engine/engine_metrics.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "engine/engine_loop.h"
#include "support/exposition.h"

namespace heddle::engine {
namespace {

using ::testing::HasSubstr;

testing::Exposition metrics_of(const EngineFixture& fixture) {
  return testing::parse_exposition(fixture.engine->metrics_text());
}

TEST(EngineMetricsTest, EveryMetricIsThereFromTheStart) {
  const EngineFixture fixture;
  const auto text = metrics_of(fixture);
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
  EngineFixture fixture;
  Received first;
  Received second;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a", 10, 4), first).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("bb", 7, 3), second).ok());
  fixture.script({1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(fixture.engine->step());
  auto text = metrics_of(fixture);
  EXPECT_EQ(text.value("heddle_running_requests") + text.value("heddle_waiting_requests"), 2);
  while (fixture.engine->step()) fixture.clock.advance_seconds(0.01);

  text = metrics_of(fixture);
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
            fixture.engine->stats().steps);
}

TEST(EngineMetricsTest, TheOldestOfTheQueueShowsItsAge) {
  EngineFixture fixture({.sizes = one_batch_slot()});
  const auto age = [&fixture] {
    return metrics_of(fixture).value("heddle_queue_oldest_age_seconds");
  };
  Received received[3];
  const auto submit = [&](const char* id, Received& to) {
    Request request = EngineFixture::request(id, 3, 50);
    request.stop.ignore_eos = true;
    ASSERT_TRUE(fixture.submit(std::move(request), to).ok());
  };
  submit("runs", received[0]);
  fixture.engine->step();
  fixture.clock.advance_seconds(5);
  fixture.engine->step();
  EXPECT_EQ(age(), 0) << "nothing waits";
  submit("first", received[1]);
  fixture.clock.advance_seconds(2);
  submit("second", received[2]);
  fixture.clock.advance_seconds(1);
  fixture.engine->step();
  EXPECT_EQ(age(), 3);
  fixture.engine->cancel("first");
  fixture.engine->step();
  EXPECT_EQ(age(), 1);
  fixture.engine->cancel("runs");
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(age(), 0);
}

// A layer that slides over 8 tokens in pages of 4, and pages for little more than one prompt.
TEST(EngineMetricsTest, WindowPagesAndEvictionsShow) {
  runner::PoolSizes sizes = one_batch_slot();
  sizes.num_pages = 200;
  sizes.windows = {{.num_pages = 20, .window = 8}};
  EngineFixture fixture({.sizes = sizes});
  fixture.script({1, 2, 3, 4, 5, 6});
  fixture.run(EngineFixture::request("a", 150, 4));
  auto text = metrics_of(fixture);
  EXPECT_EQ(text.value("heddle_window_pages_capacity"), 20);
  EXPECT_EQ(text.value("heddle_window_pages_used"), 0) << "nothing runs";
  EXPECT_EQ(text.value("heddle_window_usage_ratio"), 0);
  const double cached = text.value("heddle_window_pages_cached");
  EXPECT_GT(cached, 2);
  EXPECT_EQ(cached + text.value("heddle_window_pages_free"), 20);
  EXPECT_EQ(text.value("heddle_cache_eviction_seconds_count"), 0);

  Request other = EngineFixture::request("b", 180, 4);
  other.cache_namespace = "other";  // nothing of the first is of use
  fixture.run(other);
  text = metrics_of(fixture);
  EXPECT_GT(text.value("heddle_cache_evicted_window_pages_total"), 0);
  EXPECT_EQ(text.value("heddle_cache_evicted_tokens_total"), 0) << "there are pages for both";
}

TEST(EngineMetricsTest, TheCacheShowsInItsCounters) {
  EngineFixture fixture;
  fixture.script({1, 2, 3, 4, 5, 6});
  const Request request = EngineFixture::request("a", 200, 4);
  fixture.run(request);
  EXPECT_EQ(metrics_of(fixture).value("heddle_cached_tokens_total"), 0);
  EXPECT_GT(metrics_of(fixture).value("heddle_kv_cached_tokens"), 0);
  const Received again = fixture.run(request);
  ASSERT_GT(again.last.cached_tokens, 0);
  const auto text = metrics_of(fixture);
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
TEST(EngineMetricsTest, TokensLostToEvictionAreCounted) {
  EngineFixture fixture;
  fixture.script(std::vector<TokenId>(20, 1));
  const auto serve = [&](TokenId which) {
    Request request = EngineFixture::request("a", 450, 1);
    for (TokenId& token : request.prompt) token = (token + which) % 256;
    return fixture.run(request).last.cache.lost.eviction;
  };
  EXPECT_EQ(serve(0) + serve(1) + serve(2), 0);
  const int64_t lost = serve(0);
  EXPECT_GT(lost, 0);
  const auto text = metrics_of(fixture);
  EXPECT_EQ(text.value("heddle_cache_ghost_hits_total"), 1);
  EXPECT_EQ(text.value("heddle_cache_lost_tokens_total", {R"(cause="eviction")"}), lost);
}

TEST(EngineMetricsTest, SharedPagesAreLockedWhileTheyAreRead) {
  EngineFixture fixture;
  fixture.script(std::vector<TokenId>(20, 1));
  fixture.run(EngineFixture::request("a", 200, 1));
  EXPECT_EQ(metrics_of(fixture).value("heddle_kv_locked_tokens"), 0);
  Received received;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("b", 200, 8), received).ok());
  ASSERT_TRUE(fixture.engine->step());
  const auto text = metrics_of(fixture);
  EXPECT_GT(text.value("heddle_kv_locked_tokens"), 0);
  EXPECT_LE(text.value("heddle_kv_locked_tokens"), text.value("heddle_kv_used_tokens"));
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(metrics_of(fixture).value("heddle_kv_locked_tokens"), 0);
}

TEST(EngineMetricsTest, TheDecodeRateCoversTheLastFortySteps) {
  EngineFixture fixture;
  fixture.runner->script = [&fixture](const request::PlannedSequence&,
                                      int64_t) -> std::optional<TokenId> {
    fixture.clock.advance_seconds(0.01);  // a step takes so long
    return 7;
  };
  Received received;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a", 10, 60), received).ok());
  for (int step = 0; step < 30; ++step) ASSERT_TRUE(fixture.engine->step());
  EXPECT_EQ(metrics_of(fixture).value("heddle_decode_tokens_per_second"), 0);
  while (fixture.engine->step()) {
  }
  EXPECT_NEAR(metrics_of(fixture).value("heddle_decode_tokens_per_second"), 100, 1);
}

TEST(EngineMetricsTest, RefusedAndAbortedRequestsAreCountedByReason) {
  EngineFixture::Options options;
  options.sizes = one_batch_slot();
  options.max_queued_requests = 1;
  EngineFixture fixture(options);
  Received running, waiting;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a", 10, 100), running).ok());
  ASSERT_TRUE(fixture.submit(EngineFixture::request("c", 10, 1), waiting).ok());
  Received refused;
  EXPECT_FALSE(fixture.submit(EngineFixture::request("b"), refused).ok());
  fixture.engine->cancel("a");
  while (fixture.engine->step()) {
  }
  const auto text = metrics_of(fixture);
  EXPECT_EQ(text.value("heddle_requests_refused_total", {R"(reason="queue_full")"}), 1);
  EXPECT_EQ(text.value("heddle_requests_aborted_total"), 1);
  EXPECT_EQ(text.value("heddle_requests_finished_total", {R"(reason="abort")"}), 1);
}

TEST(EngineMetricsTest, UseForeignNamesOrNoneAtAll) {
  EngineFixture::Options options;
  options.metrics.names = MetricNames::kSglang;
  options.metrics.model_name = "served \"name\"";
  const EngineFixture foreign(options);
  const auto text = metrics_of(foreign);
  for (const char* name :
       {"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage",
        "sglang:cache_hit_rate", "sglang:gen_throughput", "sglang:prompt_tokens_total",
        "sglang:time_to_first_token_seconds", "sglang:e2e_request_latency_seconds"}) {
    EXPECT_TRUE(text.types.contains(name)) << name;
  }
  EXPECT_THAT(foreign.engine->metrics_text(), HasSubstr(R"(model_name="served \"name\"")"));
  options.metrics.enabled = false;
  EXPECT_EQ(EngineFixture(options).engine->metrics_text(), "");
}

// A step of the given sequences that ends `end_seconds` after the start and took `seconds`.
StepFacts step_of(int64_t decode_sequences, int64_t prefill_tokens, double seconds,
                  double end_seconds) {
  return {.prefill_tokens = prefill_tokens,
          .decode_sequences = decode_sequences,
          .seconds = seconds,
          .end_seconds = end_seconds};
}

TEST(EngineMetricsTest, DecodeStallsAreTheGapsBetweenStepsThatDecodeWhileStreamsWait) {
  EngineMetrics metrics(MetricNames::kHeddle, "m", {});
  const auto stalls = [&metrics] {
    const auto text = testing::parse_exposition(metrics.to_text());
    return std::pair(text.value("heddle_decode_stall_seconds_count"),
                     text.value("heddle_decode_stall_seconds_sum"));
  };
  metrics.on_step(step_of(0, 100, 1, 1), /*num_streams=*/1, 0);  // the first token of a stream
  metrics.on_step(step_of(1, 0, 1, 2.5), 1, 0);
  EXPECT_EQ(stalls(), std::pair(1.0, 0.5)) << "the host took half a second";
  metrics.on_step(step_of(0, 100, 3, 5.5), 1, 0);
  metrics.on_step(step_of(1, 10, 1, 6.5), 1, 0);
  EXPECT_EQ(stalls(), std::pair(2.0, 3.5)) << "three more behind a prompt";
  metrics.on_step(step_of(1, 0, 1, 7.5), 0, 0);
  EXPECT_EQ(stalls(), std::pair(3.0, 3.5));
  metrics.on_step(step_of(0, 100, 1, 100), 1, 0);
  metrics.on_step(step_of(1, 0, 1, 101), 1, 0);
  EXPECT_EQ(stalls(), std::pair(4.0, 3.5)) << "no stream waited in between";
  metrics.show({}, /*num_paused=*/1);
  metrics.on_step(step_of(1, 0, 1, 200), 1, 0);
  EXPECT_EQ(stalls(), std::pair(4.0, 3.5)) << "a pause is not a stall";
}

TEST(EngineMetricsTest, AStreamBehindAPromptStalls) {
  EngineFixture::Options options;
  options.scheduling.mixed_batches = false;
  EngineFixture fixture(options);
  fixture.runner->on_step = [&](const request::BatchPlan&) {
    fixture.clock.advance_seconds(1);
    return Status();
  };
  Received stream, prompt;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("stream", 3, 40), stream).ok());
  for (int step = 0; step < 5; ++step) fixture.engine->step();
  EXPECT_EQ(metrics_of(fixture).value("heddle_decode_stall_seconds_count"), 4);
  EXPECT_EQ(metrics_of(fixture).value("heddle_decode_stall_seconds_sum"), 0);
  ASSERT_TRUE(fixture.submit(EngineFixture::request("prompt", 100, 1), prompt).ok());
  while (fixture.engine->step()) {
  }
  EXPECT_EQ(metrics_of(fixture).value("heddle_decode_stall_seconds_sum"), 4) << "chunks of 32";
}

TEST(EngineMetricsTest, TheStagesOfARequestAddUpToItsTime) {
  EngineFixture fixture({.sizes = one_batch_slot()});
  fixture.runner->on_step = [&](const request::BatchPlan&) {
    fixture.clock.advance_seconds(1);
    return Status();
  };
  Received first, second, refused;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("first", 40, 3), first).ok());
  Request later = EngineFixture::request("second", 3, 2);
  later.waited_seconds = 7;
  ASSERT_TRUE(fixture.submit(std::move(later), second).ok());
  while (fixture.engine->step()) {
  }
  const auto text = metrics_of(fixture);
  const auto seconds = [&text](const char* stage) {
    return text.value("heddle_request_stage_seconds_sum", {fmt::format(R"(stage="{}")", stage)});
  };
  EXPECT_EQ(seconds("prepare"), 7);
  EXPECT_EQ(seconds("queue"), 4) << "the second waits for four steps of the first";
  EXPECT_EQ(seconds("prefill"), 2 + 1);
  EXPECT_EQ(seconds("decode"), 2 + 1);
  EXPECT_EQ(first.last.elapsed_seconds + second.last.elapsed_seconds, 4 + 3 + 3);
}

TEST(EngineMetricsTest, TenantsAreCountedUpToTheLimitAndThenAsOne) {
  EngineFixture::Options options;
  options.metrics.max_tenants = 2;
  EngineFixture fixture(options);
  int64_t number = 0;
  for (const char* tenant : {"", "a", "", "b", "c", "a"}) {
    Request request = EngineFixture::request(fmt::format("{}", number++), 10, 2);
    request.tenant = tenant;
    request.stop.ignore_eos = true;
    fixture.run(std::move(request));
  }
  const auto text = metrics_of(fixture);
  EXPECT_EQ(text.value("heddle_tenant_requests_total", {R"(tenant="a")"}), 2);
  EXPECT_EQ(text.value("heddle_tenant_requests_total", {R"(tenant="b")"}), 1);
  EXPECT_EQ(text.value("heddle_tenant_requests_total", {R"x(tenant="(none)")x"}), 2);
  EXPECT_EQ(text.value("heddle_tenant_requests_total", {R"x(tenant="(other)")x"}), 1);
  EXPECT_EQ(text.value("heddle_tenant_prompt_tokens_total", {R"(tenant="a")"}), 20);
  EXPECT_EQ(text.value("heddle_tenant_generation_tokens_total", {R"x(tenant="(other)")x"}), 2);
  EXPECT_FALSE(metrics_of(EngineFixture()).types.contains("heddle_tenant_requests_total"))
      << "only when asked for";

  options.metrics.max_tenants = 65;
  EngineParts parts;
  parts.runner = std::make_unique<testing::FakeRunner>(roomy_pools(), roomy_limits());
  parts.options.metrics = options.metrics;
  EXPECT_THAT(EngineLoop::create(std::move(parts)).status().message(),
              HasSubstr("metrics.max_tenants is 65; it must be from 0 to 64"));
}

TEST(EngineMetricsTest, TheStartIsTimed) {
  ManualClock clock;
  clock.advance_seconds(10);
  EngineParts parts;
  parts.runner = std::make_unique<testing::FakeRunner>(roomy_pools(), roomy_limits());
  parts.info = {.name = "fake", .vocab_size = 256, .context_length = 100};
  parts.clock = &clock;
  parts.drive = Drive::kManual;
  parts.start = StartTimes{.began_seconds = 4, .load_seconds = 5};
  const auto engine = EngineLoop::create(std::move(parts)).value();
  const auto text = testing::parse_exposition(engine->metrics_text());
  EXPECT_EQ(text.value("heddle_load_seconds"), 5);
  EXPECT_EQ(text.value("heddle_start_seconds"), 6);
}

TEST(EngineClearCacheTest, ClearsAtOnceWhenNothingRuns) {
  EngineFixture fixture;
  fixture.script({1, 2, 3});
  const Request request = EngineFixture::request("a", 200, 4);
  fixture.run(request);
  ASSERT_GT(metrics_of(fixture).value("heddle_kv_cached_tokens"), 0);
  std::vector<Status> answers;
  fixture.engine->clear_cache(0, [&](Status status) { answers.push_back(std::move(status)); });
  fixture.engine->step();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].ok()) << answers[0].to_string();
  EXPECT_EQ(metrics_of(fixture).value("heddle_kv_cached_tokens"), 0);
  EXPECT_EQ(fixture.run(request).last.cached_tokens, 0);
}

TEST(EngineClearCacheTest, GivesUpAtItsTimeout) {
  EngineFixture fixture;
  fixture.script(std::vector<TokenId>(50, 7));
  Received received;
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a", 10, 20), received).ok());
  ASSERT_TRUE(fixture.engine->step());
  std::vector<std::string> answers;
  const auto tell = [&answers](std::string who) {
    return [&answers, who = std::move(who)](const Status& status) {
      answers.push_back(who + " " + std::string(to_string(status.code())));
    };
  };
  fixture.engine->clear_cache(0, tell("now"));
  fixture.engine->clear_cache(1, tell("soon"));
  fixture.engine->clear_cache(1000, tell("later"));
  ASSERT_TRUE(fixture.engine->step());
  EXPECT_THAT(answers, ::testing::ElementsAre("now DEADLINE_EXCEEDED"));
  fixture.clock.advance_seconds(2);
  ASSERT_TRUE(fixture.engine->step());
  EXPECT_EQ(answers.back(), "soon DEADLINE_EXCEEDED");
  while (fixture.engine->step()) {
  }
  fixture.engine->step();
  EXPECT_EQ(answers.back(), "later OK");
  fixture.engine->drain(0);
  fixture.engine->clear_cache(1000, tell("too late"));
  EXPECT_EQ(answers.back(), "too late UNAVAILABLE");
}

TEST(EngineControlTest, ACallTooManyIsRefusedAsBusyAndNotAsAShutdown) {
  std::vector<Status> clears;  // outlive the engine, which answers everything at its end
  std::vector<Status> pauses;
  Received received;
  EngineFixture fixture;
  fixture.script(std::vector<TokenId>(50, 7));
  ASSERT_TRUE(fixture.submit(EngineFixture::request("a", 10, 20), received).ok());
  ASSERT_TRUE(fixture.engine->step());
  for (int i = 0; i < 65; ++i) {
    fixture.engine->clear_cache(1000, [&](const Status& status) { clears.push_back(status); });
    fixture.engine->resume([&](const Status& status) { pauses.push_back(status); });
  }
  for (const auto& refused : {clears, pauses}) {
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused[0].message(), ::testing::StartsWith("control_queue_full: 64 "));
  }
}

}  // namespace
}  // namespace heddle::engine
