// SPDX-License-Identifier: Apache-2.0
#include "server/call/speed_log.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace heddle::server {

void CallSpeed::add(const RequestEvent& last, bool counts_prompt) {
  if (counts_prompt) prompt_tokens_ += last.prompt_tokens;
  cached_tokens_ += last.cached_tokens;
  if (last.completion_tokens == 0) return;
  completion_tokens_ += last.completion_tokens;
  first_token_seconds_ = num_answers_ == 0
                             ? last.first_token_seconds
                             : std::min(first_token_seconds_, last.first_token_seconds);
  elapsed_seconds_ = std::max(elapsed_seconds_, last.elapsed_seconds);
  ++num_answers_;
}

std::string CallSpeed::to_string() const {
  std::string text = fmt::format("{} + {} tokens", prompt_tokens_, completion_tokens_);
  if (cached_tokens_ > 0) text += fmt::format(", {} cached", cached_tokens_);
  if (num_answers_ == 0) return text;
  text += fmt::format(", first after {:.0f} ms", first_token_seconds_ * 1e3);
  const double seconds = elapsed_seconds_ - first_token_seconds_;
  const int64_t later = completion_tokens_ - num_answers_;
  if (later > 0 && seconds > 0) {
    text += fmt::format(", {:.0f} tokens/s", static_cast<double>(later) / seconds);
  }
  return text;
}

std::optional<std::string> SpeedSummary::next(const EngineStats& stats, int64_t kv_tokens,
                                              double seconds) {
  const EngineStats before = std::exchange(before_, stats);
  if (stats.steps == before.steps || seconds <= 0) return std::nullopt;
  const auto rate = [seconds](int64_t now, int64_t then) {
    return static_cast<double>(now - then) / seconds;
  };
  return fmt::format(
      "{} running, {} waiting; {:.0f} prompt tokens/s, {:.1f} generated tokens/s; {:.0f}% of the "
      "KV cache in use",
      stats.num_running, stats.num_waiting, rate(stats.prompt_tokens, before.prompt_tokens),
      rate(stats.output_tokens, before.output_tokens),
      kv_tokens > 0
          ? 100 * static_cast<double>(stats.kv_tokens_used) / static_cast<double>(kv_tokens)
          : 0.0);
}

}  // namespace heddle::server
