// SPDX-License-Identifier: Apache-2.0
#include "verify/cached_feeding.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "engine/engine_loop.h"
#include "verify/watched_runner.h"

namespace heddle::verify {

namespace {

using runner::StepSequence;

constexpr int32_t kPageSize = 16;
constexpr int64_t kGrid = 64;  // number of tokens between state snapshots, at this page size
constexpr int64_t kMostForeignTokens = 20;
constexpr int64_t kCachedStates = 8;

std::vector<TokenId> first_prompt(const GoldenCase& golden, const CachedFeeding& feeding,
                                  int64_t vocab_size) {
  const auto shared = static_cast<size_t>(feeding.shared_tokens);
  std::vector<TokenId> prompt(golden.ids.begin(),
                              golden.ids.begin() + static_cast<int64_t>(shared));
  for (int64_t i = 0; i < feeding.foreign_tokens; ++i) {
    // differs from the case's token already at the first position
    const int64_t other = golden.ids[shared] + 1 + 7 * i;
    prompt.push_back(static_cast<TokenId>(other % vocab_size));
  }
  return prompt;
}

// Serves a golden case with an engine that is stepped manually, and compares its rows with the
// reference.
class CachedRun {
 public:
  CachedRun(runner::ForwardPass& pass, const GoldenCase& golden, std::vector<float>& first_logits)
      : pass_(pass), golden_(golden), comparison_(golden, pass, first_logits) {}

  Result<CachedResult> run(const CachedFeeding& feeding) {
    HEDDLE_RETURN_IF_ERROR(start());
    const std::vector<TokenId> first = first_prompt(golden_, feeding, pass_.config().vocab_size);
    HEDDLE_RETURN_IF_ERROR(serve(first, 1).status());
    watching_ = true;
    const auto num_greedy = static_cast<int64_t>(golden_.greedy.size());
    HEDDLE_ASSIGN_OR_RETURN(const RequestEvent last,
                            serve(golden_.ids, std::max<int64_t>(num_greedy, 1)));
    return CachedResult{.rows = comparison_.result(),
                        .cached_tokens = last.cached_tokens,
                        .exact_repeat = last.cache.exact_repeat};
  }

 private:
  Status start() {
    const int64_t max_tokens =
        golden_.num_tokens() + std::ssize(golden_.greedy) + 1 + kMostForeignTokens;
    engine::EngineParts parts;
    HEDDLE_ASSIGN_OR_RETURN(
        parts.runner, WatchedRunner::create(pass_,
                                            {.num_sequences = 1,
                                             .max_tokens = max_tokens,
                                             .num_cached_tokens = 2 * max_tokens,
                                             .num_cached_states = kCachedStates,
                                             .page_size = kPageSize,
                                             .num_cached_window_tokens = 3 * max_tokens},
                                            [this](const request::PlannedSequence& sequence,
                                                   std::span<const TokenId> new_tokens,
                                                   const StepSequence& batched, int64_t first_row) {
                                              take(sequence, new_tokens, batched, first_row);
                                            }));
    parts.info = {.vocab_size = pass_.config().vocab_size, .context_length = max_tokens};
    parts.options.chunked_prefill_tokens = pass_.max_step_tokens();
    parts.options.metrics.enabled = false;
    if (golden_.adapter != nullptr) parts.options.adapters.num_slots = golden_.adapter->slot + 1;
    parts.drive = engine::Drive::kManual;
    HEDDLE_ASSIGN_OR_RETURN(engine_, engine::EngineLoop::create(std::move(parts)));
    return {};
  }

  // Serves a request and returns its last event.
  Result<RequestEvent> serve(std::vector<TokenId> prompt, int64_t max_new_tokens) {
    Request request{.id = fmt::format("{}", ++num_requests_), .prompt = std::move(prompt)};
    request.sampling.temperature = 0;
    request.stop.max_new_tokens = max_new_tokens;
    request.adapter = golden_.adapter;
    RequestEvent last;
    HEDDLE_RETURN_IF_ERROR(engine_->submit(std::move(request), [&](const RequestEvent& event) {
      if (event.finish) last = event;
    }));
    while (engine_->step()) {
    }
    HEDDLE_CHECK(last.finish.has_value());
    HEDDLE_RETURN_IF_ERROR(last.finish->error);
    return last;
  }

  void take(const request::PlannedSequence& sequence, std::span<const TokenId> new_tokens,
            const StepSequence& batched, int64_t first_row) {
    using Part = StepSequence::Part;
    if (!watching_ || diverged_ || batched.part == Part::kSkipped) return;
    if (batched.part == Part::kHidden) {
      comparison_.take_logits(golden_.num_tokens() - 1, pass_.head_logits().row<float>(first_row));
      return;
    }
    const int64_t count = sequence.num_new_tokens();
    const int64_t last = sequence.context_tokens + count - 1;
    if (last >= golden_.num_tokens()) {
      const TokenId fed = sequence.feeds_drawn_token ? batched.fed_token : new_tokens.back();
      diverged_ = fed != golden_.greedy[static_cast<size_t>(last - golden_.num_tokens())];
    }
    if (diverged_) return;
    // If the prompt fits the first table of rotary frequencies, the reference computed these tokens
    // with it. A sequence that uses the second table has other rows for them, so they are not
    // compared.
    int64_t first = sequence.context_tokens;
    if (sequence.takes_long_rope && golden_.num_tokens() <= short_tokens()) {
      first = std::min(std::max(first, short_tokens()), first + count);
    }
    const int64_t skipped = first - sequence.context_tokens;
    comparison_.take_rows(first_row + skipped, first, count - skipped);
  }

  [[nodiscard]] int64_t short_tokens() const {
    return checkpoint::short_rope_tokens(pass_.config().rope);
  }

  runner::ForwardPass& pass_;
  const GoldenCase& golden_;
  GoldenComparison comparison_;
  std::unique_ptr<engine::EngineLoop> engine_;
  int64_t num_requests_ = 0;
  bool watching_ = false;
  bool diverged_ = false;  // a drawn token differed from the reference
};

}  // namespace

std::vector<CachedFeeding> cached_feedings(const runner::ForwardPass& pass,
                                           const GoldenCase& golden) {
  const bool has_states = !pass.cache_needs().state_layers.empty();
  const int64_t num_tokens = golden.num_tokens();
  const int64_t fork = num_tokens * 11 / 12;
  std::vector<CachedFeeding> feedings = {
      {.name = "cached to within a page", .shared_tokens = num_tokens * 2 / 3},
      {.name = "cached to a page's end", .shared_tokens = (num_tokens - 1) / kPageSize * kPageSize},
      {.name = "cached to a fork",
       .shared_tokens = fork,
       // The foreign tokens end before the next snapshot, so the last snapshot is before the fork.
       .foreign_tokens = std::min(kMostForeignTokens, kGrid - fork % kGrid)},
      {.name = "cached to the end", .shared_tokens = num_tokens}};
  if (feedings[0].shared_tokens % kPageSize == 0) --feedings[0].shared_tokens;
  std::erase_if(feedings, [](const CachedFeeding& feeding) { return feeding.shared_tokens < 1; });
  for (CachedFeeding& feeding : feedings) {
    // With states the cache has a snapshot every kGrid tokens, and one at the end of the first
    // request with its hidden vector. Without states a hit covers whole pages and leaves at least
    // the last token to compute.
    const int64_t shared = feeding.shared_tokens;
    if (!has_states) {
      const int64_t known = std::min(shared, num_tokens - 1);
      feeding.reusable_tokens = known - known % kPageSize;
    } else {
      feeding.reusable_tokens = feeding.foreign_tokens > 0 ? shared - shared % kGrid : shared;
    }
    // Rows computed with one table of rotary frequencies must not be reused with the other.
    const int64_t short_tokens = checkpoint::short_rope_tokens(pass.config().rope);
    const auto is_long = [&](int64_t length) { return short_tokens > 0 && length > short_tokens; };
    if (is_long(num_tokens) != is_long(shared + feeding.foreign_tokens)) {
      feeding.reusable_tokens = 0;
    }
  }
  return feedings;
}

Result<CachedResult> check_cached_case(runner::ForwardPass& pass, const GoldenCase& golden,
                                       const CachedFeeding& feeding,
                                       std::vector<float>& first_logits) {
  HEDDLE_RETURN_IF_ERROR(check_fits(golden, pass.config()));
  return CachedRun(pass, golden, first_logits).run(feeding);
}

}  // namespace heddle::verify
