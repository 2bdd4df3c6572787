// SPDX-License-Identifier: Apache-2.0
// The options that an engine reports are settled: none is left open.
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "support/test_data.h"

namespace heddle {
namespace {

std::unique_ptr<Engine> make_engine(EngineOptions options) {
  options.model_dir = testing::repository_path("models/heddle-tiny");
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? std::move(*engine) : nullptr;
}

TEST(EngineOptionsTest, SettlesOptionsThatWereLeftToTheEngine) {
  const auto engine = make_engine({.on_load_progress = [](int64_t, int64_t) {}});
  ASSERT_NE(engine, nullptr);
  const EngineOptions& options = engine->options();
  EXPECT_EQ(options.load_format, LoadFormat::kSafetensors);
  EXPECT_EQ(to_string(options.dtype), engine->model_info().dtype);
  EXPECT_EQ(to_string(options.kv_cache_dtype), engine->memory_plan().kv_dtype);
  EXPECT_GT(options.num_threads, 0);
  EXPECT_EQ(options.context_length, engine->model_info().context_length);
  EXPECT_GT(options.context_length, 0);
  EXPECT_EQ(options.max_running_requests, engine->memory_plan().max_running_requests);
  EXPECT_GT(options.max_running_requests, 0);
  EXPECT_EQ(options.max_total_tokens, engine->memory_plan().kv_tokens);
  EXPECT_GT(options.chunked_prefill_tokens, 0);
  EXPECT_NE(options.random_seed, 0u);
  EXPECT_FALSE(options.on_load_progress);
}

TEST(EngineOptionsTest, ReplacesOptionsThatTheModelCannotMeet) {
  const auto engine = make_engine({.exact = true,
                                   .max_total_tokens = 160,
                                   .random_seed = 7,
                                   .scheduling = {.policy = QueuePolicy::kLpm},
                                   .cache = {.enabled = false}});
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->options().dtype, RunDtype::kFloat32);
  EXPECT_EQ(engine->options().scheduling.policy, QueuePolicy::kFcfs)
      << "lpm asks the cache, which is off";
  EXPECT_EQ(engine->options().context_length, 160) << "more does not fit the KV pool";
  EXPECT_EQ(engine->options().random_seed, 7u);
}

TEST(EngineOptionsTest, ThePolicyPriorityIsFcfsWithPriorities) {
  const auto engine = make_engine({.scheduling = {.policy = QueuePolicy::kPriority}});
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->options().scheduling.policy, QueuePolicy::kFcfs);
  EXPECT_TRUE(engine->options().scheduling.enable_priority);
}

}  // namespace
}  // namespace heddle
