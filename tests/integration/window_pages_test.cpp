// SPDX-License-Identifier: Apache-2.0
// Models of which some layers slide and others do not, served with pages of their own for the
// sliding layers: in exact mode every row of logits has the bits of a plain pass over the same
// tokens that keeps all keys and values, whatever is cached, cut, preempted or given back on the
// way. The plain pass has one group of pages.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "engine/engine_loop.h"
#include "support/exposition.h"
#include "support/test_data.h"
#include "verify/session.h"
#include "verify/watched_runner.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<TokenId>;

constexpr int64_t kPassStepTokens = 640;

std::unique_ptr<runner::ForwardPass> exact_pass(const fs::path& model) {
  auto pass = runner::ForwardPass::create({.model_dir = model,
                                           .dtype = DType::kF32,
                                           .exact = true,
                                           .num_threads = 2,
                                           .max_step_tokens = kPassStepTokens,
                                           .max_logit_rows = kPassStepTokens,
                                           .head_alone = true});
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  return pass.ok() ? std::move(*pass) : nullptr;
}

// The committed Qwen2, made to slide in its last two of three layers.
class Qwen2OfBothKinds {
 public:
  Qwen2OfBothKinds()
      : folder_(fs::path(::testing::TempDir()) / fmt::format("heddle_qwen2_slides_{}", getpid())) {
    const fs::path source = testing::repository_path("tests/golden/qwen2");
    fs::create_directories(folder_);
    fs::copy_file(source / "model.safetensors", folder_ / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(source / "config.json"));
    config.erase("layer_types");
    config["use_sliding_window"] = true;
    config["sliding_window"] = 21;
    config["max_window_layers"] = 1;
    std::ofstream(folder_ / "config.json") << config;
  }

  ~Qwen2OfBothKinds() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Qwen2OfBothKinds(const Qwen2OfBothKinds&) = delete;
  Qwen2OfBothKinds& operator=(const Qwen2OfBothKinds&) = delete;

  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

struct WindowSetting {
  int32_t page_size = 16;
  int64_t chunk_tokens = 64;
  int32_t batch = 1;
  int64_t window_tokens = 1000;  // beyond the reserve
  int64_t max_tokens = 400;
  bool cache = true;
  bool overlap = true;
  bool preempted = false;

  [[nodiscard]] std::string name() const {
    return fmt::format("pages of {}, chunks of {}, {} at a time, {} tokens of windows{}{}{}",
                       page_size, chunk_tokens, batch, window_tokens, cache ? "" : ", no cache",
                       overlap ? ", overlap" : "", preempted ? ", preempted" : "");
  }
};

// A model behind an engine that is driven by hand. Keeps the logits of every row computed.
class WatchedEngine {
 public:
  struct Row {
    size_t request = 0;
    int64_t position = 0;
    std::vector<float> logits;
  };

  struct Answered {
    Tokens tokens;  // prompt and answer
    int64_t cached_tokens = 0;
    bool finished = false;
  };

  WatchedEngine(runner::ForwardPass& pass, const WindowSetting& setting) : pass_(pass) {
    engine::EngineParts parts;
    parts.runner = verify::WatchedRunner::create(
                       pass,
                       {.num_sequences = setting.batch,
                        .max_tokens = setting.max_tokens,
                        .num_cached_tokens = setting.cache ? 2 * setting.max_tokens : 0,
                        .page_size = setting.page_size,
                        .num_cached_window_tokens = setting.window_tokens},
                       [this](const request::PlannedSequence& sequence, std::span<const TokenId>,
                              const runner::StepSequence& batched,
                              int64_t first_row) { take(sequence, batched, first_row); })
                       .value();
    sizes_ = parts.runner->pool_sizes();
    parts.info = {.vocab_size = pass.config().vocab_size, .context_length = setting.max_tokens};
    parts.options.chunked_prefill_tokens = setting.chunk_tokens;
    parts.options.cache.enabled = setting.cache;
    parts.options.scheduling.overlap = setting.overlap;
    parts.options.scheduling.enable_priority = setting.preempted;
    parts.options.scheduling.preemption_threshold = 0;
    parts.options.scheduling.preemption_min_run_seconds = 0;
    parts.drive = engine::Drive::kManual;
    preempted_ = setting.preempted;
    engine_ = engine::EngineLoop::create(std::move(parts)).value();
  }

  // All together; where requests are preempted the later ones are more urgent and come late.
  std::vector<Answered> answer(const std::vector<Tokens>& prompts, int64_t max_new_tokens) {
    std::vector<Answered> answered(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (preempted_ && i > 0) {
        for (int step = 0; step < 5; ++step) (void)engine_->step();
      }
      Request request{.id = fmt::format("{}", num_requests_ + i), .prompt = prompts[i]};
      request.sampling.temperature = 0;
      request.stop.max_new_tokens = max_new_tokens;
      request.stop.ignore_eos = true;
      if (preempted_) request.priority = static_cast<int64_t>(i);
      answered[i].tokens = prompts[i];
      const Status status =
          engine_->submit(std::move(request), [&answered, i](const RequestEvent& event) {
            Answered& one = answered[i];
            one.tokens.insert(one.tokens.end(), event.tokens.begin(), event.tokens.end());
            if (!event.finish) return;
            one.finished = event.finish->reason == FinishReason::kLength;
            one.cached_tokens = event.cached_tokens;
          });
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    while (engine_->step()) engine_->check_invariants();
    engine_->check_invariants();
    for (const Answered& one : answered) EXPECT_TRUE(one.finished);
    num_requests_ += prompts.size();
    return answered;
  }

  // Of the requests so far, in the order in which they were computed.
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }

  [[nodiscard]] const runner::PoolSizes& sizes() const { return sizes_; }

  // Of all steps, the most window pages that one sequence named.
  [[nodiscard]] int64_t most_window_pages() const { return most_window_pages_; }

  [[nodiscard]] double num_preemptions() const {
    return testing::parse_exposition(engine_->metrics_text()).value("heddle_preemptions_total");
  }

 private:
  void take(const request::PlannedSequence& sequence, const runner::StepSequence& batched,
            int64_t first_row) {
    if (batched.part != runner::StepSequence::Part::kComputed) return;
    const int64_t page_size = sizes_.page_size;
    const int64_t end = sequence.context_tokens + sequence.num_new_tokens();
    const int64_t first = sizes_.window_pages.first_page(sequence.context_tokens, page_size);
    most_window_pages_ = std::max(most_window_pages_, (end + page_size - 1) / page_size - first);
    for (int64_t i = 0; i < sequence.num_new_tokens(); ++i) {
      const float* logits = pass_.logits().row<float>(first_row + i);
      rows_.push_back({.request = static_cast<size_t>(sequence.sequence_id - 1),
                       .position = sequence.context_tokens + i,
                       .logits = {logits, logits + pass_.config().vocab_size}});
    }
  }

  runner::ForwardPass& pass_;
  std::unique_ptr<engine::EngineLoop> engine_;
  runner::PoolSizes sizes_;
  std::vector<Row> rows_;
  int64_t most_window_pages_ = 0;
  size_t num_requests_ = 0;
  bool preempted_ = false;
};

// The logits of all tokens, computed in one sequence with pages for all keys and values.
std::vector<std::vector<float>> plain_logits(runner::ForwardPass& pass, const Tokens& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  verify::Session session = verify::Session::create(pass, {.max_tokens = count}).value();
  std::vector<std::vector<float>> logits;
  for (int64_t first = 0; first < count; first += kPassStepTokens) {
    const int64_t part = std::min(kPassStepTokens, count - first);
    const verify::Session::Feed feed{.sequence = 0,
                                     .tokens = std::span<const TokenId>(tokens).subspan(
                                         static_cast<size_t>(first), static_cast<size_t>(part))};
    EXPECT_TRUE(session.step({&feed, 1}, runner::LogitRows::kAll).ok());
    for (int64_t row = 0; row < part; ++row) {
      const float* from = session.logits().row<float>(row);
      logits.emplace_back(from, from + pass.config().vocab_size);
    }
  }
  return logits;
}

// Every row that was computed has the bits of the plain pass. `answered` by request.
void expect_plain_rows(runner::ForwardPass& pass, const WatchedEngine& served,
                       const std::vector<WatchedEngine::Answered>& answered) {
  std::vector<std::vector<std::vector<float>>> plain;
  for (const auto& one : answered) plain.push_back(plain_logits(pass, one.tokens));
  EXPECT_FALSE(served.rows().empty());
  for (const WatchedEngine::Row& row : served.rows()) {
    ASSERT_EQ(row.logits, plain[row.request][static_cast<size_t>(row.position)])
        << "request " << row.request << ", token " << row.position;
  }
}

Tokens scattered_tokens(int64_t count, int64_t seed) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(3 + (i * 7919 + seed * 104729 + i * i * 31) % 300));
  }
  return tokens;
}

Tokens joined(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

Tokens first(const Tokens& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

// Forks of a common beginning, turns that go on from answers, repeats and prompts of their own.
void expect_plain_answers(runner::ForwardPass& pass, const WindowSetting& setting) {
  SCOPED_TRACE(setting.name());
  WatchedEngine served(pass, setting);
  ASSERT_TRUE(served.sizes().has_window_pages());
  const Tokens stem = scattered_tokens(130, 1);
  std::vector<WatchedEngine::Answered> all =
      served.answer({joined(stem, scattered_tokens(40, 2)), joined(stem, scattered_tokens(3, 3)),
                     joined(first(stem, 70), scattered_tokens(60, 4)), scattered_tokens(37, 5)},
                    12);
  const auto second =
      served.answer({joined(all[0].tokens, scattered_tokens(20, 6)),
                     joined(first(all[0].tokens, 150), {5, 6, 7}), first(all[1].tokens, 133),
                     joined(all[3].tokens, scattered_tokens(90, 7)), joined(stem, {9, 8})},
                    20);
  all.insert(all.end(), second.begin(), second.end());
  expect_plain_rows(pass, served, all);
  const auto reused = [](const WatchedEngine::Answered& one) { return one.cached_tokens > 0; };
  const bool roomy = setting.window_tokens >= 1000;
  if (setting.cache && roomy) {
    EXPECT_GE(std::ranges::count_if(second, reused), 4);
  } else if (!setting.cache) {
    EXPECT_EQ(std::ranges::count_if(all, reused), 0);
  }
  EXPECT_EQ(served.num_preemptions() > 0, setting.preempted);
}

void expect_plain_answers_in_every_setting(const fs::path& model) {
  const auto pass = exact_pass(model);
  ASSERT_NE(pass, nullptr);
  ASSERT_TRUE(runner::mixes_windows(pass->cache_needs()));
  const WindowSetting settings[] = {
      {},
      {.page_size = 1, .chunk_tokens = 33, .batch = 3},
      {.page_size = 4, .batch = 4, .window_tokens = 0},
      {.page_size = 64, .chunk_tokens = 640, .batch = 2, .overlap = false},
      {.chunk_tokens = 7, .batch = 3, .window_tokens = 40},
      {.chunk_tokens = 640, .batch = 4, .cache = false},
      {.chunk_tokens = 32, .batch = 1, .preempted = true},
      {.page_size = 8, .batch = 2, .window_tokens = 50, .preempted = true}};
  for (const WindowSetting& setting : settings) expect_plain_answers(*pass, setting);
}

TEST(WindowPagesExactness, GptOssHasTheBitsOfThePlainPassInEverySetting) {
  HEDDLE_SHARED_PATH_OR_SKIP(model, "golden/gpt_oss");
  expect_plain_answers_in_every_setting(model);
}

TEST(WindowPagesExactness, Qwen2WithLateWindowsHasTheBitsOfThePlainPassInEverySetting) {
  expect_plain_answers_in_every_setting(Qwen2OfBothKinds().folder());
}

// 1,500 tokens of context in a pool for 80 of the layers that slide, whose windows are 21 tokens.
TEST(WindowPagesExactness, ALongContextKeepsOnlyItsWindowInSlidingLayers) {
  const Qwen2OfBothKinds model;
  const auto pass = exact_pass(model.folder());
  ASSERT_NE(pass, nullptr);
  for (const bool cache : {false, true}) {
    WatchedEngine served(*pass, {.window_tokens = 0, .max_tokens = 1520, .cache = cache});
    EXPECT_EQ(served.sizes().window_tokens(), 80);
    EXPECT_GE(served.sizes().kv_tokens(), 1520);
    auto all = served.answer({scattered_tokens(1400, 8)}, 100);
    EXPECT_LE(served.most_window_pages(), 5);
    const auto again = served.answer({joined(all[0].tokens, {4, 5, 6})}, 3);
    EXPECT_EQ(again[0].cached_tokens, cache ? 1488 : 0) << "its end is there still";
    all.push_back(again[0]);
    expect_plain_rows(*pass, served, all);
  }
}

}  // namespace
}  // namespace heddle
