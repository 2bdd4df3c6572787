// SPDX-License-Identifier: Apache-2.0
#include "engine/step_log.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::engine {
namespace {

constexpr int64_t kDecodeInterval = 40;

// Text about accepted drafts for the log; empty if no drafts were verified.
std::string gain_of_drafts(const StepLog::Decoded& decoded) {
  if (decoded.draft_tokens == 0) return {};
  const auto over = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  return fmt::format(", {:.2f} tokens a step of a sequence, {:.2f} of {} drafts held",
                     over(decoded.tokens(), decoded.steps),
                     over(decoded.accepted_drafts, decoded.draft_tokens), decoded.draft_tokens);
}

}  // namespace

void StepLog::Decoded::add(const StepFacts& step) {
  steps += step.decode_sequences;
  draft_tokens += step.draft_tokens;
  accepted_drafts += step.accepted_drafts;
}

void StepLog::on_step(const StepFacts& step, const scheduler::SchedulerStats& stats) {
  const bool shown = logs(LogLevel::kDebug);
  const double usage = static_cast<double>(stats.kv_tokens_used) /
                       static_cast<double>(kv_capacity_ > 0 ? kv_capacity_ : 1);
  if (shown && step.prefills()) {
    log_debug(fmt::format(
        "Prefill step: {} new sequences, {} tokens computed, {} cached, {:.2f} of the KV pool "
        "used, {} running, {} waiting, {:.1f} ms",
        step.new_sequences, step.prefill_tokens, step.cached_tokens, usage, stats.num_running,
        stats.num_waiting, step.seconds * 1e3));
  }
  if (step.decode_sequences == 0) return;
  ++num_decode_steps_;
  interval_.add(step);
  busy_seconds_ += step.seconds;
  if (num_decode_steps_ < kDecodeInterval) return;
  const Decoded decoded = std::exchange(interval_, {});
  rate_ = busy_seconds_ > 0 ? static_cast<double>(decoded.tokens()) / busy_seconds_ : 0;
  num_decode_steps_ = 0;
  busy_seconds_ = 0;
  if (!shown) return;
  log_debug(fmt::format(
      "{} decode steps: {} sequences with {} tokens in the last, {:.2f} of the KV pool used, "
      "{:.1f} tokens/s, {} running, {} waiting{}",
      kDecodeInterval, step.decode_sequences, step.decode_context, usage, rate_, stats.num_running,
      stats.num_waiting, gain_of_drafts(decoded)));
}

}  // namespace heddle::engine
