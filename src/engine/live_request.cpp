// SPDX-License-Identifier: Apache-2.0
#include "engine/live_request.h"

namespace heddle::engine {

using request::StopTextMatcher;

int LiveRequest::append_text(TokenId token, bool may_stop, std::string& text) {
  if (!detokenizer_) return StopTextMatcher::kNoMatch;
  return matcher_.push(detokenizer_->push(token), may_stop, text);
}

void LiveRequest::flush(std::string& text) {
  if (!detokenizer_) return;
  (void)matcher_.push(detokenizer_->finish(), false, text);
  matcher_.finish(text);
}

std::optional<Finish> LiveRequest::take_token(TokenId token, int64_t context_length,
                                              std::string& text) {
  const StopConditions& stop = sequence.request.stop;
  const int64_t drawn = ++num_delivered;
  const bool has_ended = sequence.has_ended(drawn, token);
  const bool is_longest =
      drawn >= stop.max_new_tokens || sequence.num_prompt_tokens + drawn >= context_length;
  if (is_longest && !(has_ended && sequence.constraint != nullptr)) {
    const int match = append_text(token, drawn >= stop.min_new_tokens, text);
    if (match != StopTextMatcher::kNoMatch) return stopped_by_text(match);
    flush(text);
    if (is_complete()) return Finish{.reason = FinishReason::kStop, .matched_token = token};
    return Finish{.reason = FinishReason::kLength};
  }
  const bool may_stop = drawn >= stop.min_new_tokens;
  if (has_ended) {
    if (stop.keep_stop_text) append_text(token, false, text);
    flush(text);
    return Finish{.reason = FinishReason::kStop, .matched_token = token};
  }
  const int match = append_text(token, may_stop, text);
  if (match != StopTextMatcher::kNoMatch) return stopped_by_text(match);
  if (!is_complete()) return std::nullopt;
  // Even before min_new_tokens: the constraint allows no token to continue with.
  flush(text);
  return Finish{.reason = FinishReason::kStop, .matched_token = token};
}

bool LiveRequest::is_complete() const {
  return sequence.constraint != nullptr && num_delivered == sequence.num_output_tokens() &&
         sequence.constraint->is_over();
}

Finish LiveRequest::stopped_by_text(int match) const {
  const StopConditions& stop = sequence.request.stop;
  const auto index = static_cast<size_t>(match);
  return {.reason = FinishReason::kStop,
          .matched_text = index < stop.texts.size()
                              ? stop.texts[index]
                              : stop.patterns[index - stop.texts.size()]->text()};
}

}  // namespace heddle::engine
