// SPDX-License-Identifier: Apache-2.0
// EngineFixture: an engine over a FakeRunner, for the engine's tests. Received: a record of the
// events of a request.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/log.h"
#include "engine/engine_loop.h"
#include "speculative/drafter.h"
#include "support/byte_tokenizer.h"
#include "support/fake_runner.h"

namespace heddle::engine {

// Everything that one request received.
struct Received {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<std::string> pieces;  // the text of each event
  std::vector<TokenLogprob> logprobs;
  std::optional<Finish> finish;
  RequestEvent last;
  int64_t num_events = 0;
  int64_t num_finishes = 0;

  void take(const RequestEvent& event) {
    ++num_events;
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    text += event.text;
    pieces.push_back(event.text);
    logprobs.insert(logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    last = event;
    EXPECT_EQ(event.completion_tokens, std::ssize(tokens));
    EXPECT_EQ(num_finishes, 0) << "an event after the last";
    if (!event.finish) return;
    ++num_finishes;
    finish = event.finish;
  }

  [[nodiscard]] FinishReason reason() const {
    return finish ? finish->reason : static_cast<FinishReason>(-1);
  }
};

inline runner::PoolSizes roomy_pools() {
  return {.num_pages = 256, .page_size = 4, .num_state_slots = 8, .max_sequences = 8};
}

inline request::StepLimits roomy_limits() { return {.max_tokens = 64, .max_draft_rows = 32}; }

inline runner::PoolSizes one_batch_slot() {
  runner::PoolSizes sizes = roomy_pools();
  sizes.max_sequences = 1;
  return sizes;
}

inline SchedulingOptions one_step_at_a_time() {
  SchedulingOptions options;
  options.overlap = false;
  return options;
}

class EngineFixture {
 public:
  struct Options {
    runner::PoolSizes sizes = roomy_pools();
    request::StepLimits limits = roomy_limits();
    Drive drive = Drive::kManual;
    int64_t context_length = 512;
    int32_t max_queued_requests = 64;
    int64_t chunked_prefill_tokens = 32;
    bool tokenizer = true;
    MetricsOptions metrics;
    SchedulingOptions scheduling = one_step_at_a_time();  // for tests that count steps
    CacheOptions cache;
    bool exact = false;
    double watchdog_seconds = 0;
    std::function<void()> on_stuck;
    std::function<void()> on_failure;
    std::function<std::unique_ptr<speculative::Drafter>()> make_drafter;  // empty: no drafts
    int32_t num_draft_tokens = 0;                   // per step; 0: none without a drafter
    std::optional<SpeculativeOptions> speculative;  // drafts made by the runner
  };

  EngineFixture() : EngineFixture(Options{}) {}

  explicit EngineFixture(const Options& options) {
    set_log_level(LogLevel::kOff);  // the errors are on purpose
    auto fake = std::make_unique<testing::FakeRunner>(options.sizes, options.limits);
    runner = fake.get();
    EngineParts parts;
    parts.runner = std::move(fake);
    if (options.tokenizer) parts.tokenizer = std::make_unique<testing::ByteTokenizer>();
    parts.info = {.name = "fake",
                  .vocab_size = testing::ByteTokenizer::kVocabSize,
                  .context_length = options.context_length,
                  .eos_token_ids = {testing::ByteTokenizer::kEos}};
    parts.options.chunked_prefill_tokens = options.chunked_prefill_tokens;
    parts.options.max_queued_requests = options.max_queued_requests;
    parts.options.random_seed = 1;
    parts.options.metrics = options.metrics;
    parts.options.scheduling = options.scheduling;
    parts.options.cache = options.cache;
    parts.options.exact = options.exact;
    if (options.drive == Drive::kManual) parts.clock = &clock;
    parts.drive = options.drive;
    parts.options.watchdog_seconds = options.watchdog_seconds;
    parts.on_stuck = options.on_stuck;
    parts.options.on_failure = options.on_failure;
    if (options.make_drafter) parts.drafter = options.make_drafter();
    if (options.make_drafter) {
      parts.options.speculative = {.algorithm = DraftAlgorithm::kNgram,
                                   .num_draft_tokens = options.num_draft_tokens};
    }
    if (options.speculative) parts.options.speculative = *options.speculative;
    engine = EngineLoop::create(std::move(parts)).value();
  }

  static Request request(std::string id, int64_t prompt_tokens = 3, int64_t max_new_tokens = 4) {
    Request request;
    request.id = std::move(id);
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>((i * 31 + std::ssize(request.id) * 7) % 256));
    }
    request.stop.max_new_tokens = max_new_tokens;
    return request;
  }

  Status submit(Request request, Received& received) {
    return engine->submit(std::move(request),
                          [&received](const RequestEvent& event) { received.take(event); });
  }

  // The runner draws these tokens, one after the other, for every sequence; then EOS.
  void script(std::vector<TokenId> tokens) {
    runner->script = [tokens = std::move(tokens)](const request::PlannedSequence&,
                                                  int64_t num_drawn) -> std::optional<TokenId> {
      const auto drawn = static_cast<size_t>(num_drawn);
      return drawn < tokens.size() ? tokens[drawn] : testing::ByteTokenizer::kEos;
    };
  }

  // Runs one request to its end.
  Received run(Request request) {
    Received received;
    const Status status = submit(std::move(request), received);
    EXPECT_TRUE(status.ok()) << status.to_string();
    while (engine->step()) engine->check_invariants();
    return received;
  }

  ManualClock clock;
  testing::FakeRunner* runner = nullptr;  // the engine's
  std::unique_ptr<EngineLoop> engine;
};

}  // namespace heddle::engine
