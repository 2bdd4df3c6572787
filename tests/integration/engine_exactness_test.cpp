// SPDX-License-Identifier: Apache-2.0
// The whole engine in exact mode, over models that keep recurrent states, that keep none, whose
// layers slide, and that keep latents: company, chunks, page sizes and pools too small for
// everybody never change a token or a bit of its logprob.
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <heddle/engine.h>

#include "integration/on_device.h"
#include "support/dense_model.h"
#include "support/finish_count.h"
#include "support/test_data.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

struct LoggedAnswer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool finished = false;
  int64_t cached_tokens = 0;  // reused of the prompt
  int64_t num_drafts = 0;     // that steps verified
};

// How an answer came about does not count.
bool operator==(const LoggedAnswer& a, const LoggedAnswer& b) {
  return a.tokens == b.tokens && a.logprobs == b.logprobs && a.finished == b.finished;
}

constexpr int64_t kNewTokens = 40;
constexpr int64_t kPromptVocabulary = 311;  // below that of every model here

std::vector<std::vector<TokenId>> prompts() {
  std::vector<std::vector<TokenId>> all;
  for (const int64_t length : {1, 17, 64, 65, 130, 200}) {
    std::vector<TokenId> prompt;
    for (int64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<TokenId>((i * 7919 + length * 31) % kPromptVocabulary));
    }
    all.push_back(std::move(prompt));
  }
  return all;
}

// Answers to `all` prompts, one after the other or all at once.
std::vector<LoggedAnswer> answer_all(const std::filesystem::path& model, EngineOptions options,
                                     bool together,
                                     const std::vector<std::vector<TokenId>>& all = prompts(),
                                     float temperature = 0.8f) {
  options.model_dir = model;
  options.exact = true;
  options.num_threads = 2;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return {};
  std::vector<LoggedAnswer> answers(all.size());
  testing::FinishCount finished;
  for (size_t i = 0; i < all.size(); ++i) {
    Request request{.id = fmt::format("{}", i), .prompt = all[i]};
    request.sampling.temperature = temperature;
    request.sampling.seed = 7 + i;
    request.stop.max_new_tokens = kNewTokens;
    request.stop.ignore_eos = true;
    request.return_logprobs = true;
    const Status status = (*engine)->submit(std::move(request), [&, i](const RequestEvent& event) {
      answers[i].tokens.insert(answers[i].tokens.end(), event.tokens.begin(), event.tokens.end());
      for (const TokenLogprob& logprob : event.logprobs) {
        answers[i].logprobs.push_back(logprob.logprob);
      }
      if (!event.finish) return;
      answers[i].cached_tokens = event.cached_tokens;
      answers[i].num_drafts = event.drafts.accepted_tokens + event.drafts.rejected_tokens;
      answers[i].finished = event.finish->reason == FinishReason::kLength;
      finished.add();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!together) finished.wait_for(i + 1);
  }
  finished.wait_for(all.size());
  return answers;
}

// A copy of a golden model's folder with the tokenizer of heddle-tiny, for as long as it lives:
// goldens have none, and the prompts here are token ids.
class WithTokenizer {
 public:
  explicit WithTokenizer(const fs::path& model)
      : folder_(fs::path(::testing::TempDir()) /
                fmt::format("heddle_{}_{}", model.filename().string(), getpid())) {
    fs::create_directories(folder_);
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
      copy(model / name);
    }
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      copy(testing::repository_path("models/heddle-tiny") / name);
    }
  }

  ~WithTokenizer() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  WithTokenizer(const WithTokenizer&) = delete;
  WithTokenizer& operator=(const WithTokenizer&) = delete;

  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  void copy(const fs::path& from) {
    fs::copy_file(from, folder_ / from.filename(), fs::copy_options::overwrite_existing);
  }

  fs::path folder_;
};

// On a GPU decode steps are launched as graphs, those of the sequences alone kernel by kernel.
class EngineExactness : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEDDLE_DEVICE_OR_SKIP(GetParam()); }

  static void expect_the_same_bits_however_work_is_moved(
      const std::filesystem::path& model, KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto,
      LoadFormat load_format = LoadFormat::kAuto) {
    const std::vector<LoggedAnswer> alone = answer_all(model,
                                                       {.load_format = load_format,
                                                        .kv_cache_dtype = kv_cache_dtype,
                                                        .device = GetParam(),
                                                        .disable_cuda_graph = true},
                                                       /*together=*/false);
    for (const LoggedAnswer& answer : alone) {
      EXPECT_TRUE(answer.finished);
      EXPECT_EQ(std::ssize(answer.tokens), kNewTokens);
      EXPECT_EQ(std::ssize(answer.logprobs), kNewTokens);
    }
    const auto together = [&](EngineOptions options) {
      options.load_format = load_format;
      options.kv_cache_dtype = kv_cache_dtype;
      options.device = GetParam();
      return answer_all(model, options, true);
    };
    EXPECT_EQ(together({}), alone) << "together";
    EXPECT_EQ(together({.max_running_requests = 8, .chunked_prefill_tokens = 64}), alone)
        << "in chunks";
    EXPECT_EQ(together({.page_size = 1}), alone) << "page size 1";
    EXPECT_EQ(together({.page_size = 128}), alone) << "page size 128";
    EXPECT_EQ(together({.max_running_requests = 2}), alone) << "two at a time";
    // 477 prompt tokens and 240 new ones do not fit into 512: one request has to give way.
    EXPECT_EQ(together({.max_total_tokens = 512}), alone) << "a pool too small for all";
    if (kv_cache_dtype != KvCacheDtype::kAuto) {
      EXPECT_NE(answer_all(model, {.device = GetParam()}, true), alone)
          << "are keys and values rounded?";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, EngineExactness, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, EngineExactness, ::testing::Values("cuda"));

TEST_P(EngineExactness, NothingThatMovesWorkAroundChangesABit) {
  expect_the_same_bits_however_work_is_moved(testing::repository_path("models/heddle-tiny"));
}

TEST_P(EngineExactness, NorOfAModelWithoutRecurrentStates) {
  expect_the_same_bits_however_work_is_moved(WithTokenizer(testing::dense_model()).folder());
}

// A chunk of a prompt sees its own keys and values as later ones do: as they are stored. With
// heddle-tiny it is cache_exactness_test.cpp that sees to it.
TEST_P(EngineExactness, NorWithKeysAndValuesInFp8) {
  expect_the_same_bits_however_work_is_moved(WithTokenizer(testing::dense_model()).folder(),
                                             KvCacheDtype::kFp8E4m3);
}

// A model folder with a tokenizer and Phi-3's config.json, in which longrope extends a context of
// 64 tokens.
class LongRopeModel {
 public:
  LongRopeModel()
      : folder_(fs::path(::testing::TempDir()) / fmt::format("heddle_phi3_{}", getpid())) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << R"({
      "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "vocab_size": 320, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
      "hidden_act": "silu", "rms_norm_eps": 1e-5, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": false,
      "max_position_embeddings": 512, "original_max_position_embeddings": 48, "rope_theta": 10000.0,
      "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1.1, 1.1, 1.2, 1.3, 1.4, 1.5],
                       "long_factor": [1.1, 1.4, 2, 3, 5, 9, 15, 30]}})";
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(testing::repository_path("models/heddle-tiny") / name, folder_ / name,
                    fs::copy_options::overwrite_existing);
    }
  }

  ~LongRopeModel() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  LongRopeModel(const LongRopeModel&) = delete;
  LongRopeModel& operator=(const LongRopeModel&) = delete;

  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

// Some prompts fit the original context and others do not; the answer to the one of 17 tokens
// outgrows it.
TEST_P(EngineExactness, NothingThatMovesWorkChangesABitOfATextThatOutgrowsItsRotaryTable) {
  const LongRopeModel model;
  expect_the_same_bits_however_work_is_moved(model.folder(), KvCacheDtype::kAuto,
                                             LoadFormat::kDummy);
  // The answer to the second of two equal prompts is drafted from the first answer.
  const std::vector<std::vector<TokenId>> twice(2, prompts()[1]);
  EngineOptions options{.load_format = LoadFormat::kDummy, .device = GetParam()};
  const auto plain = answer_all(model.folder(), options, /*together=*/false, twice, 0);
  options.speculative.algorithm = DraftAlgorithm::kNgram;
  options.speculative.num_draft_tokens = 5;
  const auto drafted = answer_all(model.folder(), options, /*together=*/false, twice, 0);
  EXPECT_EQ(drafted, plain);
  EXPECT_GT(drafted[1].num_drafts, 0) << "no draft was verified on the way over the border";
}

// Prompts that continue an answer which went over the border find, each on its side, what that
// answer left in the cache.
TEST_P(EngineExactness, ACachedBeginningOnEitherSideOfTheOriginalContextChangesNoBit) {
  const LongRopeModel model;
  EngineOptions options{.load_format = LoadFormat::kDummy, .device = GetParam()};
  const std::vector<TokenId> prompt = prompts()[1];
  const auto first = answer_all(model.folder(), options, /*together=*/false, {prompt});
  ASSERT_EQ(std::ssize(first), 1);
  std::vector<std::vector<TokenId>> all = {prompt};
  for (const int64_t kept : {20, 38}) {  // texts of 37 and 55 tokens
    std::vector<TokenId> longer = prompt;
    longer.insert(longer.end(), first[0].tokens.begin(), first[0].tokens.begin() + kept);
    all.push_back(std::move(longer));
  }
  options.page_size = 1;
  const auto cached = answer_all(model.folder(), options, /*together=*/false, all);
  options.cache.enabled = false;
  const auto cold = answer_all(model.folder(), options, /*together=*/false, all);
  EXPECT_EQ(cached, cold);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    EXPECT_GT(cached[i].cached_tokens, 30) << i;
    EXPECT_EQ(cold[i].cached_tokens, 0) << i;
  }
}

TEST_P(EngineExactness, NorOfModelsWhoseLayersSlide) {
  HEDDLE_SHARED_PATH_OR_SKIP(some, "golden/gpt_oss");
  expect_the_same_bits_however_work_is_moved(WithTokenizer(some).folder());
  HEDDLE_SHARED_PATH_OR_SKIP(all, "golden/mistral_sliding");  // pages are given up on the way
  expect_the_same_bits_however_work_is_moved(WithTokenizer(all).folder());
  expect_the_same_bits_however_work_is_moved(WithTokenizer(all).folder(), KvCacheDtype::kFp8E4m3);
}

TEST_P(EngineExactness, NorOfAModelThatKeepsLatents) {
  HEDDLE_SHARED_PATH_OR_SKIP(model, "golden/deepseek_v3");
  expect_the_same_bits_however_work_is_moved(WithTokenizer(model).folder());
  expect_the_same_bits_however_work_is_moved(WithTokenizer(model).folder(), KvCacheDtype::kFp8E4m3);
}

TEST_P(EngineExactness, NorOfAModelThatKeepsLatentsAndStates) {
  HEDDLE_SHARED_PATH_OR_SKIP(model, "golden/kimi_linear");
  expect_the_same_bits_however_work_is_moved(WithTokenizer(model).folder());
}

TEST_P(EngineExactness, NothingThatMovesWorkChangesABitOfHybridsWithOtherStates) {
  for (const char* name : {"lfm2", "lfm2_moe", "olmo_hybrid", "minimax", "jamba"}) {
    SCOPED_TRACE(name);
    HEDDLE_SHARED_PATH_OR_SKIP(model, fs::path("golden") / name);
    expect_the_same_bits_however_work_is_moved(WithTokenizer(model).folder());
  }
}

}  // namespace
}  // namespace heddle
