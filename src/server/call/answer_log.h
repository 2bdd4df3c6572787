// SPDX-License-Identifier: Apache-2.0
// AnswerLog: collects the events of a call so far, choice by choice, and formats the values that
// every API shows in the same way.
//
// An answer that is not streamed is collected here until its last choice has finished. Log
// probabilities are stored as numbers, not as JSON: a token with 20 alternatives needs 176 bytes
// here and up to 1.7 kB in the answer.
//
// Threading: thread-confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/request.h>

namespace heddle::server {

class TextCodec;

// The log probabilities of consecutive tokens and of their alternatives, in flat arrays.
class LogprobLog {
 public:
  void add(const TokenLogprob& entry);
  void append(const LogprobLog& more);
  void clear();

  [[nodiscard]] size_t size() const { return entries_.size(); }

  [[nodiscard]] TokenId token(size_t index) const { return entries_[index].first; }

  [[nodiscard]] float logprob(size_t index) const { return entries_[index].second; }

  // The alternatives of a token, best first.
  [[nodiscard]] std::span<const std::pair<TokenId, float>> top(size_t index) const;

  // The log probabilities of Request::logprob_tokens at a token.
  [[nodiscard]] std::span<const float> listed(size_t index) const;

 private:
  std::vector<std::pair<TokenId, float>> entries_;
  std::vector<std::pair<TokenId, float>> tops_;  // alternatives of all entries, one after the other
  std::vector<size_t> top_ends_;  // for each entry, the end of its alternatives in tops_
  std::vector<float> listed_;     // values of all entries; each has the same number
};

// Counters of a request, as in its latest event.
struct ChoiceCounts {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t reasoning_tokens = 0;  // set by adapters that count them (answer_stream.h)
  CacheReport cache;
  DraftReport drafts;
  int64_t num_retractions = 0;
  double queue_seconds = 0;
  double elapsed_seconds = 0;
};

// One choice. Text, tokens and log probabilities that were not sent yet; without clear(), which is
// called after they were sent, these are all.
struct ChoiceLog {
  std::string text;
  std::vector<TokenId> tokens;
  LogprobLog logprobs;
  LogprobLog prompt_logprobs;  // log probabilities of the prompt (RequestEvent::prompt_logprobs)
  std::optional<Finish> finish;
  ChoiceCounts counts;

  void add(const RequestEvent& event);
  void clear();
};

// The usage: {"prompt_tokens": .., "completion_tokens": .., ...}. Each prompt counts once for all
// its answers, outputs are summed. Choices are in prompt-major order. `cache_details`:
// prompt_tokens_details also report how much of the prompts was cached, whether not even their last
// token was computed, and why cached tokens were computed again.
[[nodiscard]] nlohmann::ordered_json usage_json(std::span<const ChoiceLog> choices,
                                                size_t choices_per_prompt, bool cache_details);

[[nodiscard]] std::string_view finish_name(FinishReason reason);

// The stop token's id or the stop text that ended the answer, or null.
[[nodiscard]] nlohmann::ordered_json matched_stop(const Finish& finish);

// {"device": reused, "matched_tokens": .., "exact_repeat": .., "deferred_ms": .., "lost_tokens":
// ..}: how much of the prompt was reused, how much had cached KV rows, and why the difference was
// computed again.
[[nodiscard]] nlohmann::ordered_json cache_details(const CacheReport& report);

// Appends {"token": .., "logprob": .., "bytes": [..], "top_logprobs": [..]}, the form of a token in
// chat completions and responses.
void append_token_logprob(const LogprobLog& log, size_t index, const TextCodec& codec,
                          std::string& out);

// Appends a log probability as a JSON number. A masked token's -inf is not JSON and becomes -9999.
void append_logprob(float logprob, std::string& out);

}  // namespace heddle::server
