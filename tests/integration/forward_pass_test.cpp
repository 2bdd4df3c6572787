// SPDX-License-Identifier: Apache-2.0
// The loaded model as a machine: what a step allocates, what it reads, what it may touch.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "request/batch_slots.h"
#include "runner/load/decode_traffic.h"
#include "runner/load/model_runner.h"
#include "support/allocation_count.h"
#include "support/hand_plan.h"
#include "support/test_data.h"
#include "verify/session.h"

namespace heddle {
namespace {

using runner::ForwardPass;
using runner::LogitRows;
using verify::Session;

std::unique_ptr<ForwardPass> tiny(bool exact, int threads = 2, bool debug = false) {
  auto pass = ForwardPass::create({.model_dir = testing::repository_path("models/heddle-tiny"),
                                   .exact = exact,
                                   .num_threads = threads,
                                   .captures = {.debug = debug},
                                   .max_step_tokens = 256,
                                   .max_logit_rows = 256,
                                   .head_alone = true});
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  return std::move(*pass);
}

std::vector<TokenId> some_tokens(int64_t count, int64_t seed) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>((i * 7919 + seed * 104729) % 1400));
  return tokens;
}

std::vector<float> logits_of(const Session& session) {
  const TensorView logits = session.logits();
  return {logits.as<float>(), logits.as<float>() + logits.num_elements()};
}

TEST(ForwardPass, DecodeStepsAllocateNothingAfterTheFirst) {
  if (!testing::AllocationCount::supported()) GTEST_SKIP() << "a sanitizer owns operator new";
  const auto pass = tiny(/*exact=*/false);
  auto session = Session::create(*pass, {.num_sequences = 2, .max_tokens = 64});
  ASSERT_TRUE(session.ok());
  const std::vector<TokenId> prompt = some_tokens(20, 1);
  const std::vector<TokenId> next = some_tokens(1, 2);
  const std::vector<Session::Feed> prefill = {{0, prompt}, {1, prompt}};
  const std::vector<Session::Feed> decode = {{0, next}, {1, next}};
  ASSERT_TRUE(session->step(prefill, LogitRows::kSampled).ok());
  ASSERT_TRUE(session->step(decode, LogitRows::kSampled).ok());
  const testing::AllocationCount allocations;
  for (int step = 0; step < 10; ++step)
    ASSERT_TRUE(session->step(decode, LogitRows::kSampled).ok());
  EXPECT_EQ(allocations.count(), 0);
}

TEST(ForwardPass, GivesTheSameBitsWhateverTheArenaHeldBefore) {
  const auto pass = tiny(/*exact=*/false);
  std::vector<std::vector<float>> results;
  for (const int pattern : {0x00, 0xff}) {
    ASSERT_TRUE(pass->executor().poison(pass->stream(), static_cast<std::byte>(pattern)).ok());
    auto session = Session::create(*pass, {.num_sequences = 1, .max_tokens = 256});
    ASSERT_TRUE(session.ok());
    const std::vector<TokenId> tokens = some_tokens(131, 3);
    const std::vector<Session::Feed> feed = {{0, tokens}};
    ASSERT_TRUE(session->step(feed, LogitRows::kAll).ok());
    results.push_back(logits_of(*session));
  }
  EXPECT_EQ(results[0], results[1]);
}

// Every node of every step is proved to write its outputs, whose memory held NaNs.
TEST(ForwardPass, GivesTheSameBitsWithTheChecksOfDebugMode) {
  for (const bool exact : {false, true}) {
    std::vector<std::vector<float>> results;
    for (const bool debug : {false, true}) {
      const auto pass = tiny(exact, 2, debug);
      auto session = Session::create(*pass, {.num_sequences = 2, .max_tokens = 64});
      ASSERT_TRUE(session.ok());
      const std::vector<TokenId> prompt = some_tokens(33, 1);
      const std::vector<TokenId> next = some_tokens(2, 2);
      const std::vector<Session::Feed> prefill = {{0, prompt}, {1, std::span(prompt).first(5)}};
      const std::vector<Session::Feed> decode = {{0, next}, {1, next}};
      std::vector<float> logits;
      for (const auto& [feeds, rows] : {std::pair(prefill, LogitRows::kAll),
                                        {decode, LogitRows::kSampled},
                                        {decode, LogitRows::kAll}}) {
        const Status status = session->step(feeds, rows);
        ASSERT_TRUE(status.ok()) << status.to_string();
        std::ranges::copy(logits_of(*session), std::back_inserter(logits));
      }
      const Status status = pass->run_head(pass->head_rows());
      ASSERT_TRUE(status.ok()) << status.to_string();
      results.push_back(std::move(logits));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(ForwardPass, ExactModeDoesNotDependOnThreadsPageSizeOrASlotsPast) {
  std::vector<std::vector<float>> results;
  const std::vector<TokenId> tokens = some_tokens(97, 4);
  const std::vector<TokenId> other = some_tokens(97, 5);
  for (const int threads : {1, 2, 3}) {
    const auto pass = tiny(/*exact=*/true, threads);
    for (const int32_t page_size : {1, 16, 128}) {
      auto session =
          Session::create(*pass, {.num_sequences = 1, .max_tokens = 128, .page_size = page_size});
      ASSERT_TRUE(session.ok());
      const std::vector<Session::Feed> past = {{0, other}};
      ASSERT_TRUE(session->step(past, LogitRows::kSampled).ok());
      ASSERT_TRUE(session->reset(0).ok());
      const std::vector<Session::Feed> feed = {{0, tokens}};
      ASSERT_TRUE(session->step(feed, LogitRows::kAll).ok());
      results.push_back(logits_of(*session));
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(ForwardPass, ExactModeResumesFromASnapshotBitForBit) {
  const auto pass = tiny(/*exact=*/true);
  const models::CacheNeeds needs = pass->cache_needs();
  constexpr int32_t kPageSize = 16;
  auto pools = runner::Pools::create(
      pass->device(), needs,
      {.sizes = {.num_pages = 16, .page_size = kPageSize, .num_state_slots = 4},
       .kv_dtype = pass->dtype()});
  ASSERT_TRUE(pools.ok());
  runner::ForwardBatch batch({.max_tokens = 256,
                              .max_sequences = 2,
                              .max_pages_per_sequence = 16,
                              .page_size = kPageSize});
  const std::vector<TokenId> tokens = some_tokens(150, 6);
  std::vector<int32_t> pages(16);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i + 1);

  // One pass over everything, keeping the state after 64, 100 and 128 tokens.
  const std::vector<request::PlannedSnapshot> wanted = {
      {.tokens = 64, .slot = 2}, {.tokens = 100, .slot = 3}, {.tokens = 128, .slot = 4}};
  request::BatchSlots slots(2, 16);
  testing::HandPlan plan;
  plan.sequences = {
      {.new_tokens = tokens, .pages = pages, .state_slot = 1, .snapshots = wanted, .sample = true}};
  ASSERT_TRUE(slots.take(plan.flat()).ok());
  ASSERT_TRUE(batch.build(plan.flat(), slots, LogitRows::kAll).ok());
  ASSERT_TRUE(pass->run(batch.ids(), batch.positions(), batch.context(*pools)).ok());
  const TensorView whole = pass->logits();
  const int64_t V = pass->config().vocab_size;
  const std::vector<float> last(whole.row<float>(149), whole.row<float>(149) + V);

  // The rest again from each snapshot.
  for (const request::PlannedSnapshot& snapshot : wanted) {
    SCOPED_TRACE(fmt::format("from token {}", snapshot.tokens));
    const std::vector<ops::IdCopy> back = {{.from = snapshot.slot, .to = 1}};
    ASSERT_TRUE(pools->accept_drafts(pass->stream(), pass->context(), back).ok());
    const auto rest =
        std::span<const TokenId>(tokens).subspan(static_cast<size_t>(snapshot.tokens));
    plan.sequences = {{.new_tokens = rest,
                       .context_tokens = snapshot.tokens,
                       .pages = pages,
                       .state_slot = 1,
                       .sample = true}};
    ASSERT_TRUE(slots.take(plan.flat()).ok());
    ASSERT_TRUE(batch.build(plan.flat(), slots, LogitRows::kSampled).ok());
    ASSERT_TRUE(pass->run(batch.ids(), batch.positions(), batch.context(*pools)).ok());
    const TensorView resumed = pass->logits();
    EXPECT_EQ(std::vector<float>(resumed.as<float>(), resumed.as<float>() + V), last);
  }
}

TEST(ForwardPass, CountsTheBytesOfADecodeStep) {
  const auto pass = tiny(/*exact=*/false);
  const double one = runner::decode_traffic(*pass, 1, 0).weight_bytes;
  const double many = runner::decode_traffic(*pass, 1000, 0).weight_bytes;
  const double all = static_cast<double>(pass->weights().bytes_copied());
  double experts = 0;
  for (int layer = 0; layer < 8; ++layer) {
    for (const char* block : {"w13", "w2"}) {
      experts += static_cast<double>(
          pass->weights()[fmt::format("layers.{}.mlp.experts.{}", layer, block)].num_bytes());
    }
  }
  const auto table = static_cast<double>(pass->weights()["embed_tokens"].num_bytes());
  EXPECT_NEAR(one, all - 0.75 * experts - table, 0.01 * all)
      << "a quarter of the experts, one row of the table";
  EXPECT_NEAR(many, all, 0.05 * all);
}

TEST(ForwardPass, CountsOnlyTheTokensThatAWindowReads) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "golden/mistral_sliding");  // three layers, windows of 24
  const auto pass = ForwardPass::create({.model_dir = folder, .max_step_tokens = 1});
  ASSERT_TRUE(pass.ok()) << pass.status().to_string();
  const double row_bytes = 2 * 2 * 16 * 4;  // a key and a value of two heads of 16 floats
  EXPECT_EQ(runner::decode_traffic(**pass, 1, 10).cache_bytes, 3 * 10 * row_bytes);
  EXPECT_EQ(runner::decode_traffic(**pass, 2, 1000).cache_bytes, 2 * 3 * 24 * row_bytes);
  const auto fp8 =
      ForwardPass::create({.model_dir = folder, .kv_dtype = DType::kF8E4M3, .max_step_tokens = 1});
  ASSERT_TRUE(fp8.ok()) << fp8.status().to_string();
  EXPECT_EQ(runner::decode_traffic(**fp8, 1, 10).cache_bytes, 3 * 10 * row_bytes / 4);
}

TEST(LoadModel, PlansItsMemoryAndNamesBadOptions) {
  EngineOptions options{.model_dir = testing::repository_path("models/heddle-tiny"),
                        .speculative = {.algorithm = DraftAlgorithm::kNone}};
  const auto loaded = runner::load_model(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->info.architecture, "Qwen3NextForCausalLM");
  EXPECT_EQ(loaded->info.vocab_size, 1536);
  EXPECT_EQ(loaded->info.eos_token_ids, (std::vector<TokenId>{1427, 1425}));
  EXPECT_GT(loaded->plan.kv_tokens, 8192);
  const auto token_bytes = [](const MemoryPlan& plan) {  // page 0 is a sink
    return static_cast<double>(plan.kv_pool_bytes) /
           static_cast<double>(plan.kv_tokens + plan.page_size);
  };
  EXPECT_EQ(loaded->plan.kv_dtype, "bfloat16");
  EXPECT_EQ(token_bytes(loaded->plan), 2 * 2 * 256 * 2);  // two layers of keys and values
  EngineOptions fp8 = options;
  fp8.kv_cache_dtype = KvCacheDtype::kFp8E4m3;
  const auto loaded_fp8 = runner::load_model(fp8);
  ASSERT_TRUE(loaded_fp8.ok()) << loaded_fp8.status().to_string();
  EXPECT_EQ(loaded_fp8->plan.kv_dtype, "float8_e4m3");
  EXPECT_EQ(token_bytes(loaded_fp8->plan), 2 * 2 * 256);
  EXPECT_EQ(loaded_fp8->runner->pool_sizes().page_bytes, 16 * 2 * 2 * 256);

  const auto message = [&](auto change) {
    EngineOptions changed = options;
    change(changed);
    return runner::load_model(changed).status().message();
  };
  EXPECT_EQ(message([](EngineOptions& o) { o.page_size = 24; }),
            "page_size 24 is not a power of two from 1 to 128");
  EXPECT_EQ(message([](EngineOptions& o) { o.exact = true, o.dtype = RunDtype::kBfloat16; }),
            "exact mode computes in float32; dtype is \"bfloat16\"");
  EXPECT_EQ(message([](EngineOptions& o) { o.context_length = 9000; }),
            "context_length 9000 is not within 1 to the model's 8192");
  EXPECT_NE(message([](EngineOptions& o) { o.model_dir = "no/such/folder"; }), "");
}

}  // namespace
}  // namespace heddle
