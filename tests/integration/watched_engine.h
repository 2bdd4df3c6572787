// SPDX-License-Identifier: Apache-2.0
// WatchedEngine: a model behind an engine that is driven by hand and that keeps the logits of every
// row it computes, so that a test can compare them with a plain pass over the same tokens.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/engine_loop.h"
#include "support/exposition.h"
#include "verify/session.h"
#include "verify/watched_runner.h"

namespace heddle::testing {

using Tokens = std::vector<TokenId>;

inline constexpr int64_t kPassStepTokens = 640;

// Takes kPassStepTokens rows a step, with logits of all of them.
inline std::unique_ptr<runner::ForwardPass> exact_pass(runner::ForwardOptions options) {
  options.dtype = DType::kF32;
  options.exact = true;
  options.num_threads = 2;
  options.max_step_tokens = kPassStepTokens;
  options.max_logit_rows = kPassStepTokens;
  options.head_alone = true;
  auto pass = runner::ForwardPass::create(options);
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  return pass.ok() ? std::move(*pass) : nullptr;
}

struct WatchedSetting {
  int32_t page_size = 16;
  int64_t chunk_tokens = 64;
  int32_t batch = 1;
  int64_t window_tokens = 1000;  // beyond the reserve
  int64_t states = 0;            // beside those of running sequences
  int64_t max_tokens = 400;
  bool cache = true;
  std::string policy = "multi";  // of the state snapshots
  bool overlap = true;
  bool preempted = false;

  [[nodiscard]] std::string name() const {
    return fmt::format("{}, pages of {}, chunks of {}, {} at a time, {} tokens of windows{}{}",
                       cache ? policy : "no cache", page_size, chunk_tokens, batch, window_tokens,
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

  WatchedEngine(runner::ForwardPass& pass, const WatchedSetting& setting) : pass_(pass) {
    engine::EngineParts parts;
    parts.runner = verify::WatchedRunner::create(
                       pass,
                       {.num_sequences = setting.batch,
                        .max_tokens = setting.max_tokens,
                        .num_cached_tokens = setting.cache ? 2 * setting.max_tokens : 0,
                        .num_cached_states = setting.states,
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
    parts.options.cache.state_snapshots = parse_snapshot_policy(setting.policy).value();
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

  // Of all steps, the most pages that one sequence named in the table with the narrowest window.
  [[nodiscard]] int64_t most_pages_of_a_window() const { return most_pages_of_a_window_; }

  [[nodiscard]] double num_preemptions() const {
    return parse_exposition(engine_->metrics_text()).value("heddle_preemptions_total");
  }

 private:
  void take(const request::PlannedSequence& sequence, const runner::StepSequence& batched,
            int64_t first_row) {
    if (batched.part != runner::StepSequence::Part::kComputed) return;
    const int64_t page_size = sizes_.page_size;
    const int64_t end = sequence.context_tokens + sequence.num_new_tokens();
    if (!sizes_.windows.empty()) {
      const int64_t first = sizes_.windows[0].first_page(sequence.context_tokens, page_size);
      most_pages_of_a_window_ =
          std::max(most_pages_of_a_window_, (end + page_size - 1) / page_size - first);
    }
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
  int64_t most_pages_of_a_window_ = 0;
  size_t num_requests_ = 0;
  bool preempted_ = false;
};

// The logits of all tokens, computed in one sequence with pages for all keys and values.
inline std::vector<std::vector<float>> plain_logits(runner::ForwardPass& pass,
                                                    const Tokens& tokens) {
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
inline void expect_plain_rows(runner::ForwardPass& pass, const WatchedEngine& served,
                              const std::vector<WatchedEngine::Answered>& answered) {
  std::vector<std::vector<std::vector<float>>> plain;
  for (const auto& one : answered) plain.push_back(plain_logits(pass, one.tokens));
  EXPECT_FALSE(served.rows().empty());
  for (const WatchedEngine::Row& row : served.rows()) {
    ASSERT_EQ(row.logits, plain[row.request][static_cast<size_t>(row.position)])
        << "request " << row.request << ", token " << row.position;
  }
}

inline Tokens scattered_tokens(int64_t count, int64_t seed) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(3 + (i * 7919 + seed * 104729 + i * i * 31) % 300));
  }
  return tokens;
}

inline Tokens joined(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

inline Tokens first(const Tokens& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

// Whether the answer's tokens are the most likely ones of the plain pass.
inline void expect_likeliest_tokens(runner::ForwardPass& pass,
                                    const WatchedEngine::Answered& answered,
                                    size_t num_prompt_tokens) {
  const std::vector<std::vector<float>> plain = plain_logits(pass, answered.tokens);
  for (size_t i = num_prompt_tokens; i < answered.tokens.size(); ++i) {
    const auto best = std::ranges::max_element(plain[i - 1]) - plain[i - 1].begin();
    ASSERT_EQ(answered.tokens[i], best) << "token " << i;
  }
}

// Forks of a common beginning, turns that go on from answers, and repeats.
inline void expect_plain_conversations(runner::ForwardPass& pass, const WatchedSetting& setting) {
  SCOPED_TRACE(setting.name());
  WatchedEngine served(pass, setting);
  const Tokens stem = scattered_tokens(130, 1);
  std::vector<Tokens> prompts = {joined(stem, scattered_tokens(40, 2)),
                                 joined(stem, scattered_tokens(3, 3)),
                                 joined(first(stem, 70), scattered_tokens(60, 4))};
  std::vector<WatchedEngine::Answered> all = served.answer(prompts, 12);
  const std::vector<Tokens> later = {joined(all[0].tokens, scattered_tokens(20, 6)),
                                     joined(first(all[0].tokens, 150), {5, 6, 7}),
                                     first(all[1].tokens, 133), prompts[0], joined(stem, {9, 8})};
  const auto second = served.answer(later, 20);
  prompts.insert(prompts.end(), later.begin(), later.end());
  all.insert(all.end(), second.begin(), second.end());
  expect_plain_rows(pass, served, all);
  for (size_t i = 0; i < all.size(); ++i) expect_likeliest_tokens(pass, all[i], prompts[i].size());
  const auto reused = [](const WatchedEngine::Answered& one) { return one.cached_tokens > 0; };
  if (!setting.cache) {
    EXPECT_EQ(std::ranges::count_if(all, reused), 0);
  } else if (!setting.preempted) {
    EXPECT_GE(std::ranges::count_if(second, reused), 3);
  }
  EXPECT_EQ(served.num_preemptions() > 0, setting.preempted);
}

// Any two of policy, page size, chunks, batch and preemption, where a state is of a few kilobytes.
inline std::vector<WatchedSetting> settings_of_every_policy() {
  std::vector<WatchedSetting> settings;
  for (const char* policy : {"multi", "extra_buffer"}) {
    for (const int32_t page_size : {1, 4, 16, 64}) {
      settings.push_back({.page_size = page_size,
                          .batch = page_size == 4 ? 3 : 1,
                          .states = 24,
                          .policy = policy});
    }
  }
  settings.push_back({.page_size = 1, .states = 24, .policy = "no_buffer"});
  settings.push_back(
      {.page_size = 1, .batch = 3, .states = 24, .policy = "no_buffer", .overlap = false});
  settings.push_back({.chunk_tokens = 33, .batch = 2, .window_tokens = 40, .states = 4});
  settings.push_back({.chunk_tokens = 640, .batch = 4, .cache = false});
  settings.push_back({.chunk_tokens = 32, .batch = 1, .states = 8, .preempted = true});
  settings.push_back(
      {.page_size = 8, .batch = 2, .window_tokens = 50, .states = 8, .preempted = true});
  return settings;
}

}  // namespace heddle::testing
