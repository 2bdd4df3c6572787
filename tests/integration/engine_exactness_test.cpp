// SPDX-License-Identifier: Apache-2.0
// The whole engine over the real model in exact mode: company, chunks, page sizes and pools too
// small for everybody never change a token or a bit of its logprob.
#include <condition_variable>
#include <mutex>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <heddle/engine.h>

#include "support/test_data.h"

namespace heddle {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool finished = false;
};

bool operator==(const Answer& a, const Answer& b) {
  return a.tokens == b.tokens && a.logprobs == b.logprobs && a.finished == b.finished;
}

constexpr int64_t kNewTokens = 40;

std::vector<std::vector<TokenId>> prompts() {
  std::vector<std::vector<TokenId>> all;
  for (const int64_t length : {1, 17, 64, 65, 130, 200}) {
    std::vector<TokenId> prompt;
    for (int64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<TokenId>((i * 7919 + length * 31) % 1400));
    }
    all.push_back(std::move(prompt));
  }
  return all;
}

// Answers to all prompts, one after the other or all at once.
std::vector<Answer> answer_all(EngineOptions options, bool together) {
  options.model_dir = testing::repository_path("models/heddle-tiny");
  options.exact = true;
  options.num_threads = 2;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  const auto all = prompts();
  std::vector<Answer> answers(all.size());
  std::mutex mutex;
  std::condition_variable changed;
  size_t num_finished = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    Request request{.id = fmt::format("{}", i), .prompt = all[i]};
    request.sampling.temperature = 0.8f;
    request.sampling.seed = 7 + i;
    request.stop.max_new_tokens = kNewTokens;
    request.stop.ignore_eos = true;
    request.return_logprobs = true;
    const Status status = (*engine)->submit(std::move(request), [&, i](const RequestEvent& event) {
      const std::lock_guard lock(mutex);
      answers[i].tokens.insert(answers[i].tokens.end(), event.tokens.begin(), event.tokens.end());
      for (const TokenLogprob& logprob : event.logprobs) {
        answers[i].logprobs.push_back(logprob.logprob);
      }
      if (!event.finish) return;
      answers[i].finished = event.finish->reason == FinishReason::kLength;
      ++num_finished;
      changed.notify_all();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::unique_lock lock(mutex);
    if (!together) changed.wait(lock, [&] { return num_finished == i + 1; });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_finished == all.size(); });
  return answers;
}

TEST(EngineExactness, NothingThatMovesWorkAroundChangesABit) {
  const std::vector<Answer> alone = answer_all({}, /*together=*/false);
  for (const Answer& answer : alone) {
    EXPECT_TRUE(answer.finished);
    EXPECT_EQ(std::ssize(answer.tokens), kNewTokens);
    EXPECT_EQ(std::ssize(answer.logprobs), kNewTokens);
  }
  EXPECT_EQ(answer_all({}, true), alone) << "together";
  EXPECT_EQ(answer_all({.max_running_requests = 8, .chunked_prefill_tokens = 64}, true), alone)
      << "in chunks";
  EXPECT_EQ(answer_all({.page_size = 1}, true), alone) << "page size 1";
  EXPECT_EQ(answer_all({.page_size = 128}, true), alone) << "page size 128";
  EXPECT_EQ(answer_all({.max_running_requests = 2}, true), alone) << "two at a time";
  // 477 prompt tokens and 240 new ones do not fit into 512: somebody has to give way.
  EXPECT_EQ(answer_all({.max_total_tokens = 512}, true), alone) << "a pool too small for all";
}

}  // namespace
}  // namespace heddle
