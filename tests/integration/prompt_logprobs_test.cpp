// SPDX-License-Identifier: Apache-2.0
// Logprobs of prompts in exact mode: those of one pass over the whole prompt, bit for bit, whatever
// cuts it, is cached of it, shares its steps or sends it back to the queue.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "core/mutex.h"
#include "integration/on_device.h"
#include "sampling/sampler.h"
#include "support/dense_model.h"
#include "support/test_data.h"
#include "verify/session.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kTop = 3;
constexpr std::array<TokenId, 3> kListed = {0, 300, 41};  // scored beside them
constexpr int64_t kDrawnTokens = 12;
constexpr int64_t kSharedVocabulary = 311;  // below that of every model here

struct Prompt {
  std::vector<TokenId> tokens;
  int64_t from = 0;
};

std::vector<Prompt> scored_prompts() {
  std::vector<Prompt> all;
  for (const int64_t length : {2, 65, 200}) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(static_cast<TokenId>((i * 7919 + length * 31) % kSharedVocabulary));
    }
    for (const int64_t from : {int64_t{0}, length / 2}) all.push_back({tokens, from});
  }
  return all;
}

bool same_score(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && a.logprob == b.logprob && a.top == b.top && a.listed == b.listed;
}

// By one pass over each prompt, without an engine. The sum over the distribution is checked in
// double.
std::vector<std::vector<TokenLogprob>> by_whole_passes(const fs::path& model) {
  auto pass = runner::ForwardPass::create({.model_dir = model,
                                           .exact = true,
                                           .num_threads = 2,
                                           .max_step_tokens = 256,
                                           .max_logit_rows = 256});
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  auto session = verify::Session::create(**pass, {.num_sequences = 1, .max_tokens = 256});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  const int64_t V = (*pass)->config().vocab_size;
  sampling::Sampler sampler(V);
  std::vector<std::vector<TokenLogprob>> all;
  for (const Prompt& prompt : scored_prompts()) {
    EXPECT_TRUE(session->reset(0).ok());
    const std::vector<verify::Session::Feed> feed = {{0, prompt.tokens}};
    EXPECT_TRUE(session->step(feed, runner::LogitRows::kAll).ok());
    const MutableTensorView logits = session->logits();
    std::vector<TokenLogprob>& scored = all.emplace_back();
    for (size_t i = static_cast<size_t>(std::max<int64_t>(prompt.from, 1));
         i < prompt.tokens.size(); ++i) {
      const std::span<const float> row(logits.row<float>(static_cast<int64_t>(i) - 1),
                                       static_cast<size_t>(V));
      const Status status = sampler.score(row, prompt.tokens[i], static_cast<int64_t>(i), kTop,
                                          kListed, scored.emplace_back());
      EXPECT_TRUE(status.ok()) << status.to_string();
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit));
      const double logit = row[static_cast<size_t>(prompt.tokens[i])];
      EXPECT_NEAR(scored.back().logprob, logit - std::log(sum), 1e-4);
    }
  }
  return all;
}

class ScoredAnswers {
 public:
  Status submit(Engine& engine, const Prompt& prompt, size_t index) {
    Request request{.id = fmt::format("{}", index), .prompt = prompt.tokens};
    request.prompt_logprobs = {.from = prompt.from, .top = kTop};
    request.logprob_tokens.assign(kListed.begin(), kListed.end());
    request.stop.max_new_tokens = kDrawnTokens;
    return submit(engine, std::move(request), index);
  }

  // The tokens before the row that scores the first one, which are cached up to their end then.
  Status submit_beginning(Engine& engine, const Prompt& prompt, size_t index) {
    Request request{.id = fmt::format("beginning of {}", index), .prompt = prompt.tokens};
    request.prompt.resize(static_cast<size_t>(prompt.from - 1));
    request.stop.max_new_tokens = 0;
    return submit(engine, std::move(request), index);
  }

  void wait() {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) { return num_running_ == 0; });
  }

  [[nodiscard]] std::vector<std::vector<TokenLogprob>> scores() const {
    const MutexLock lock(mutex_);
    return scores_;
  }

  [[nodiscard]] std::vector<std::vector<TokenId>> tokens() const {
    const MutexLock lock(mutex_);
    return tokens_;
  }

  [[nodiscard]] int64_t cached_tokens() const {
    const MutexLock lock(mutex_);
    return cached_tokens_;
  }

 private:
  Status submit(Engine& engine, Request request, size_t index) {
    {
      const MutexLock lock(mutex_);
      scores_.resize(std::max(scores_.size(), index + 1));
      tokens_.resize(scores_.size());
      scores_[index].clear();
      tokens_[index].clear();
      ++num_running_;
    }
    request.sampling.temperature = 0.8f;
    request.sampling.repetition_penalty = 1.2f;  // of the output: the prompt's are as they are
    request.sampling.seed = 7 + index;
    request.stop.ignore_eos = true;
    return engine.submit(std::move(request), [this, index](const RequestEvent& event) {
      const MutexLock lock(mutex_);
      std::ranges::copy(event.prompt_logprobs, std::back_inserter(scores_[index]));
      std::ranges::copy(event.tokens, std::back_inserter(tokens_[index]));
      if (!event.finish) return;
      EXPECT_EQ(event.finish->reason, FinishReason::kLength);
      cached_tokens_ = event.cached_tokens;
      --num_running_;
      changed_.notify_all();
    });
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<TokenLogprob>> scores_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::vector<TokenId>> tokens_ HEDDLE_GUARDED_BY(mutex_);
  int64_t cached_tokens_ HEDDLE_GUARDED_BY(mutex_) = 0;  // of the request that ended last
  int num_running_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

class PromptLogprobs : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEDDLE_DEVICE_OR_SKIP(GetParam()); }

  static std::unique_ptr<Engine> engine(const fs::path& model, EngineOptions options) {
    options.model_dir = model;
    options.device = GetParam();
    options.exact = true;
    options.num_threads = 2;
    options.skip_tokenizer = true;
    auto engine = Engine::create(options);
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  // All prompts, at once or one after the other, a second time with what is cached.
  static void expect_scores(Engine& engine, bool together,
                            const std::vector<std::vector<TokenLogprob>>& want,
                            std::vector<std::vector<TokenId>>& tokens) {
    ScoredAnswers answers;
    const auto all = scored_prompts();
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < all.size(); ++i) {
        const bool from_cache = !together && round == 0 && all[i].from > 1;
        if (from_cache) {
          ASSERT_TRUE(answers.submit_beginning(engine, all[i], i).ok());
          answers.wait();
        }
        ASSERT_TRUE(answers.submit(engine, all[i], i).ok());
        if (!together) answers.wait();
        if (from_cache) {
          const int64_t known = all[i].from - 1;
          EXPECT_GE(answers.cached_tokens(), known - known % engine.options().page_size);
          EXPECT_LE(answers.cached_tokens(), known);
        }
      }
      answers.wait();
      const std::vector<std::vector<TokenLogprob>> scores = answers.scores();
      for (size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(fmt::format("round {}, prompt {}", round, i));
        ASSERT_EQ(scores[i].size(), want[i].size());
        for (size_t k = 0; k < want[i].size(); ++k) {
          ASSERT_TRUE(same_score(scores[i][k], want[i][k])) << "token " << k;
        }
      }
      if (tokens.empty()) tokens = answers.tokens();
      EXPECT_EQ(answers.tokens(), tokens);
    }
  }

  static void expect_those_of_whole_passes(const fs::path& model) {
    // On a GPU sums are its own: those of prompts alone are compared with.
    std::vector<std::vector<TokenLogprob>> want = by_whole_passes(model);
    if (GetParam() == "cuda") {
      ScoredAnswers alone;
      const auto engine = PromptLogprobs::engine(model, {.disable_cuda_graph = true});
      ASSERT_NE(engine, nullptr);
      const auto all = scored_prompts();
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_TRUE(alone.submit(*engine, all[i], i).ok());
        alone.wait();
        const std::vector<TokenLogprob> scored = alone.scores()[i];
        ASSERT_EQ(scored.size(), want[i].size());
        for (size_t k = 0; k < want[i].size(); ++k) {
          EXPECT_NEAR(scored[k].logprob, want[i][k].logprob, 1e-2);
        }
      }
      want = alone.scores();
    }
    const std::pair<const char*, EngineOptions> ways[] = {
        {"as it comes", {}},
        {"chunks of 1", {.max_running_requests = 1, .chunked_prefill_tokens = 1}},
        {"chunks of 7", {.max_running_requests = 1, .chunked_prefill_tokens = 7}},
        {"chunks of 64", {.max_running_requests = 8, .chunked_prefill_tokens = 64}},
        {"pages of 1", {.page_size = 1}},
        {"pages of 128", {.page_size = 128}},
        {"two at a time", {.max_running_requests = 2}},
        {"a pool too small for all", {.max_total_tokens = 512}},
        {"drafts", {.speculative = {.algorithm = DraftAlgorithm::kNgram}}},
    };
    std::vector<std::vector<TokenId>> tokens;
    for (const auto& [name, options] : ways) {
      SCOPED_TRACE(name);
      const auto engine = PromptLogprobs::engine(model, options);
      ASSERT_NE(engine, nullptr);
      expect_scores(*engine, /*together=*/false, want, tokens);
      engine->clear_cache(10, [](const Status&) {});
      expect_scores(*engine, /*together=*/true, want, tokens);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, PromptLogprobs, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, PromptLogprobs, ::testing::Values("cuda"));

TEST_P(PromptLogprobs, AreThoseOfOnePassOverThePrompt) {
  expect_those_of_whole_passes(testing::repository_path("models/heddle-tiny"));
}

TEST_P(PromptLogprobs, AlsoOfAModelWithoutRecurrentStates) {
  expect_those_of_whole_passes(testing::dense_model());
}

TEST_P(PromptLogprobs, AlsoOfModelsWhoseLayersSlide) {
  HEDDLE_SHARED_PATH_OR_SKIP(some, "golden/gpt_oss");
  expect_those_of_whole_passes(some);
  HEDDLE_SHARED_PATH_OR_SKIP(all, "golden/mistral_sliding");
  expect_those_of_whole_passes(all);
}

}  // namespace
}  // namespace heddle
