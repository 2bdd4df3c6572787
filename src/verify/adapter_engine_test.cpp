// SPDX-License-Identifier: Apache-2.0
// Engines with LoRA adapters, in exact mode: requests of several adapters share steps, each has the
// tokens and log probabilities that it has alone, and none is given cached tokens of another.
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "checkpoint/adapter_fixture.h"
#include "support/test_data.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using AdapterPtr = std::shared_ptr<const Adapter>;

struct AdapterAnswer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  int64_t cached_tokens = 0;
  Status error;

  bool operator==(const AdapterAnswer& other) const {
    return tokens == other.tokens && logprobs == other.logprobs;
  }
};

class AdapterEngineTest : public ::testing::Test {
 protected:
  // Writes an adapter for both kinds of mixers, a router, a shared expert and the head.
  fs::path write_adapter(int64_t rank, uint32_t seed) {
    struct Module {
      const char* name;
      int64_t N, K;
    };

    constexpr Module kModules[] = {{"model.layers.0.linear_attn.in_proj_qkvz", 1536, 256},
                                   {"model.layers.0.linear_attn.in_proj_ba", 8, 256},
                                   {"model.layers.0.mlp.gate", 16, 256},
                                   {"model.layers.3.self_attn.q_proj", 1024, 256},
                                   {"model.layers.3.self_attn.v_proj", 256, 256},
                                   {"model.layers.3.mlp.shared_expert.down_proj", 256, 64},
                                   {"lm_head", 1536, 256}};
    checkpoint::testing::NamedTensors tensors;
    for (const Module& module : kModules) {
      const std::string name = module.name;
      tensors.emplace(name + ".lora_A.weight",
                      checkpoint::testing::uneven({rank, module.K}, ++seed));
      tensors.emplace(name + ".lora_B.weight",
                      checkpoint::testing::uneven({module.N, rank}, ++seed));
    }
    const std::string config =
        fmt::format(R"({{"r": {}, "lora_alpha": {}, "target_modules": "all-linear"}})", rank,
                    0.05 * static_cast<double>(rank));
    return checkpoint::testing::write_adapter(folder_.path() / fmt::format("r{}_{}", rank, seed),
                                              config, tensors);
  }

  static EngineOptions options_with(int32_t num_slots, DraftAlgorithm drafts) {
    return {.model_dir = testing::repository_path("models/heddle-tiny"),
            .exact = true,
            .device = "cpu",
            .num_threads = 2,
            .max_running_requests = 5,
            .chunked_prefill_tokens = 48,
            .max_total_tokens = 4096,
            .speculative = {.algorithm = drafts},
            .adapters = {.num_slots = num_slots, .max_rank = 13},
            .skip_tokenizer = true};
  }

  static std::unique_ptr<Engine> engine_with(int32_t num_slots,
                                             DraftAlgorithm drafts = DraftAlgorithm::kNone) {
    auto engine = Engine::create(options_with(num_slots, drafts));
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  // Answers of requests that are submitted together.
  static std::vector<AdapterAnswer> answers(Engine& engine, const std::vector<AdapterPtr>& adapters,
                                            int64_t prompt_tokens = 70) {
    std::vector<AdapterAnswer> all(adapters.size());
    std::vector<Request> requests;
    for (size_t i = 0; i < adapters.size(); ++i) {
      Request& request = requests.emplace_back();
      request.id = fmt::format("{}", ++num_requests_);
      for (int64_t t = 0; t < prompt_tokens; ++t) {
        request.prompt.push_back(static_cast<TokenId>((t * 37 + t / 9) % 1400));
      }
      request.sampling.temperature = 0;
      request.stop = {.max_new_tokens = 12, .ignore_eos = true};
      request.return_logprobs = true;
      request.adapter = adapters[i];
    }
    std::promise<void> done;
    size_t num_left = all.size();
    const Status status =
        engine.submit_all(std::move(requests), [&](size_t index, RequestEvent&& event) {
          AdapterAnswer& answer = all[index];
          answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
          for (const TokenLogprob& one : event.logprobs) answer.logprobs.push_back(one.logprob);
          answer.cached_tokens = event.cached_tokens;
          if (!event.finish) return;
          answer.error = event.finish->error;
          if (--num_left == 0) done.set_value();
        });
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (status.ok()) done.get_future().wait();
    for (const AdapterAnswer& answer : all) EXPECT_TRUE(answer.error.ok());
    return all;
  }

  static AdapterPtr loaded(Engine& engine, const fs::path& folder) {
    auto adapter = engine.load_adapter(folder);
    EXPECT_TRUE(adapter.ok()) << adapter.status().to_string();
    return adapter.ok() ? *adapter : nullptr;
  }

  checkpoint::testing::TemporaryFolder folder_;
  inline static int num_requests_ = 0;
};

TEST_F(AdapterEngineTest, RequestsHaveTheBitsThatTheyHaveAlone) {
  const std::vector<fs::path> folders = {write_adapter(1, 100), write_adapter(8, 200),
                                         write_adapter(13, 300)};
  std::vector<AdapterAnswer> alone;
  const auto plain = engine_with(0);
  ASSERT_NE(plain, nullptr);
  alone.push_back(answers(*plain, {nullptr}).front());
  for (const fs::path& folder : folders) {
    const auto engine = engine_with(1);
    ASSERT_NE(engine, nullptr);
    alone.push_back(answers(*engine, {loaded(*engine, folder)}).front());
  }
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i].tokens.size(), 12u);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(alone[i].logprobs, alone[j].logprobs) << i << j;
  }
  for (const DraftAlgorithm drafts :
       {DraftAlgorithm::kNone, DraftAlgorithm::kNgram, DraftAlgorithm::kMtp}) {
    SCOPED_TRACE(to_string(drafts));
    const auto engine = engine_with(3, drafts);
    ASSERT_NE(engine, nullptr);
    std::vector<AdapterPtr> adapters = {nullptr};
    for (const fs::path& folder : folders) adapters.push_back(loaded(*engine, folder));
    for (const bool is_cached : {false, true}) {
      const std::vector<AdapterAnswer> together = answers(*engine, adapters);
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(together[i], alone[i]) << i;
        EXPECT_EQ(together[i].cached_tokens > 0, is_cached) << i;
      }
    }
  }
}

TEST_F(AdapterEngineTest, EqualAdaptersAloneShareCachedTokens) {
  const auto engine = engine_with(3);
  ASSERT_NE(engine, nullptr);
  const fs::path first = write_adapter(8, 100), second = write_adapter(8, 200);
  AdapterPtr adapter = loaded(*engine, first);
  const AdapterPtr other = loaded(*engine, second);
  EXPECT_NE(adapter->content_hash, other->content_hash);
  const auto cached = [&](const AdapterPtr& own) {
    return answers(*engine, {own}).front().cached_tokens;
  };
  EXPECT_EQ(cached(adapter), 0);
  EXPECT_GT(cached(adapter), 0);
  EXPECT_EQ(cached(other), 0);
  EXPECT_EQ(cached(nullptr), 0);
  adapter.reset();
  adapter = loaded(*engine, first);  // the same content again
  EXPECT_GT(cached(adapter), 0);
  adapter.reset();
  adapter = loaded(*engine, write_adapter(8, 300));  // another content in the same slot
  EXPECT_EQ(cached(adapter), 0);
}

TEST_F(AdapterEngineTest, SlotsAreFreeOnceNobodyHoldsTheAdapter) {
  const auto engine = engine_with(1);
  ASSERT_NE(engine, nullptr);
  const fs::path folder = write_adapter(8, 100);
  AdapterPtr adapter = loaded(*engine, folder);
  EXPECT_EQ(engine->load_adapter(folder).status().code(), StatusCode::kResourceExhausted);
  const AdapterAnswer before = answers(*engine, {adapter}).front();
  adapter.reset();
  // The engine frees the slot soon after the last event. A load that fails leaves it free.
  const fs::path high = write_adapter(14, 200);
  Status too_high = engine->load_adapter(high).status();
  while (too_high.code() == StatusCode::kResourceExhausted) {
    std::this_thread::yield();
    too_high = engine->load_adapter(high).status();
  }
  EXPECT_EQ(too_high.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(too_high.message(), HasSubstr("give --max-lora-rank 14"));
  EXPECT_EQ(answers(*engine, {loaded(*engine, folder)}).front(), before);
}

TEST_F(AdapterEngineTest, EnginesWithoutAdaptersRefuseThem) {
  const auto plain = engine_with(0);
  ASSERT_NE(plain, nullptr);
  EXPECT_THAT(plain->load_adapter(write_adapter(8, 100)).status().message(),
              HasSubstr("--enable-lora"));
  Request request{.id = "x", .prompt = {1}};
  request.adapter = std::make_shared<const Adapter>();
  EXPECT_EQ(plain->submit(std::move(request), [](RequestEvent&&) {}).code(),
            StatusCode::kInvalidArgument);
  EngineOptions ranks = options_with(1, DraftAlgorithm::kNone);
  ranks.num_ranks = 2;
  const Status status = Engine::create(ranks).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("heddle merge MODEL ADAPTER OUT_DIR"));
}

}  // namespace
}  // namespace heddle
