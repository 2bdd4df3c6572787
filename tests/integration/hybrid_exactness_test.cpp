// SPDX-License-Identifier: Apache-2.0
// Hybrids whose layers keep other states than the delta rule's, in exact mode: every row of logits
// has the bits of a plain pass over the same tokens, whatever is cached, forked, restored or
// preempted on the way, and answers those of the cold run, however many drafts are taken back.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "integration/knowing_drafter.h"
#include "integration/watched_engine.h"
#include "support/test_data.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::ExactAnswer;
using testing::ExactWorkload;
using testing::joined;
using testing::scattered_tokens;
using testing::Tokens;
using testing::WatchedSetting;
using testing::Wave;

class HybridExactness : public ::testing::TestWithParam<const char*> {};

TEST_P(HybridExactness, HasTheBitsOfThePlainPassUnderEveryPolicyAndPageSize) {
  HEDDLE_SHARED_PATH_OR_SKIP(model, fs::path("golden") / GetParam());
  const auto pass = testing::exact_pass({.model_dir = model});
  ASSERT_NE(pass, nullptr);
  for (const WatchedSetting& setting : testing::settings_of_every_policy()) {
    testing::expect_plain_conversations(*pass, setting);
  }
}

EngineOptions options_of(const fs::path& model, int32_t batch) {
  EngineOptions options{.model_dir = model,
                        .num_threads = 2,
                        .max_running_requests = batch,
                        .chunked_prefill_tokens = 64,
                        .max_total_tokens = 4096};
  options.exact = true;
  options.skip_tokenizer = true;
  options.speculative.algorithm = DraftAlgorithm::kNone;
  return options;
}

// Two waves: forks of a common beginning, then the same prompts again. Answered cold and alone.
ExactWorkload cold_workload(const fs::path& model) {
  EngineOptions options = options_of(model, 1);
  options.cache.enabled = false;
  const auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  ExactWorkload workload;
  if (!engine.ok()) return workload;
  for (int wave = 0; wave < 2; ++wave) {
    workload.waves.emplace_back();
    for (int64_t i = 0; i < 4; ++i) {
      Request request{.id = fmt::format("{}", workload.answers.size()),
                      .prompt = joined(scattered_tokens(70, 1), scattered_tokens(7 * i + 1, i))};
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.stop.max_new_tokens = 30;
      request.stop.ignore_eos = true;
      request.return_logprobs = true;
      request.top_logprobs = static_cast<int32_t>(testing::kTopLogprobs);
      workload.answers.push_back(testing::answer_together(**engine, {request}, false)[0]);
      workload.waves.back().push_back(std::move(request));
    }
  }
  return workload;
}

TEST_P(HybridExactness, TakesBackTheStatesOfDraftsThatDoNotHold) {
  HEDDLE_SHARED_PATH_OR_SKIP(model, fs::path("golden") / GetParam());
  const ExactWorkload workload = cold_workload(model);
  for (const bool trees : {false, true}) {
    SCOPED_TRACE(trees ? "trees" : "chains");
    EngineOptions options = options_of(model, 4);
    options.speculative = {.algorithm = DraftAlgorithm::kNgram, .num_draft_tokens = 9};
    const auto engine = testing::create_drafting_engine(options, workload, trees);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    DraftReport drafts;
    int64_t cached_tokens = 0;
    size_t next = 0;
    for (const Wave& wave : workload.waves) {
      for (const ExactAnswer& answer : testing::answer_together(**engine, wave, false)) {
        EXPECT_TRUE(answer == workload.answers[next]) << "request " << next << answer.error;
        ++next;
        drafts.accepted_tokens += answer.drafts.accepted_tokens;
        drafts.rejected_tokens += answer.drafts.rejected_tokens;
        cached_tokens += answer.cached_tokens;
      }
    }
    EXPECT_GT(drafts.accepted_tokens, 20);
    EXPECT_GT(drafts.rejected_tokens, 20);
    EXPECT_GT(cached_tokens, 4 * 70);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, HybridExactness,
                         ::testing::Values("lfm2", "lfm2_moe", "olmo_hybrid", "minimax", "jamba",
                                           "nemotron_h", "granitemoehybrid", "falcon_h1",
                                           "zamba2"));

}  // namespace
}  // namespace heddle
