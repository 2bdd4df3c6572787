// SPDX-License-Identifier: Apache-2.0
// AnswerLog: what the events of a call have said so far, choice by choice, and the values that
// every API shows of it in the same words.
//
// An answer that is not streamed is kept here until its last choice has finished. Logprobs are kept
// as numbers, not as JSON: a token with 20 alternatives takes 176 bytes here and up to 1.7 kB in
// the answer.
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

// The logprobs of a run of tokens and of their alternatives, in flat arrays.
class LogprobLog {
 public:
  void add(const TokenLogprob& entry);
  void append(const LogprobLog& more);
  void clear();

  [[nodiscard]] size_t size() const { return entries_.size(); }

  [[nodiscard]] TokenId token(size_t index) const { return entries_[index].first; }

  [[nodiscard]] float logprob(size_t index) const { return entries_[index].second; }

  // Best first.
  [[nodiscard]] std::span<const std::pair<TokenId, float>> top(size_t index) const;

  // Of Request::logprob_tokens.
  [[nodiscard]] std::span<const float> listed(size_t index) const;

 private:
  std::vector<std::pair<TokenId, float>> entries_;
  std::vector<std::pair<TokenId, float>> tops_;  // of all entries
  std::vector<size_t> top_ends_;                 // in tops_, one per entry
  std::vector<float> listed_;                    // of all entries, as many for each
};

// Counters of a request, as of its latest event.
struct ChoiceCounts {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t reasoning_tokens = 0;  // set by adapters that know (answer_stream.h)
  CacheReport cache;
  DraftReport drafts;
  int64_t num_retractions = 0;
  double queue_seconds = 0;
  double elapsed_seconds = 0;
};

// One choice. Text, tokens and logprobs are those that were not shown yet: all of them, unless
// clear() is called after they were.
struct ChoiceLog {
  std::string text;
  std::vector<TokenId> tokens;
  LogprobLog logprobs;
  LogprobLog prompt_logprobs;  // RequestEvent::prompt_logprobs
  std::optional<Finish> finish;
  ChoiceCounts counts;

  void add(const RequestEvent& event);
  void clear();
};

// {"prompt_tokens": .., "completion_tokens": .., ...}: each prompt once for its answers, the
// outputs summed. Choices are prompt-major. `cache_details`: prompt_tokens_details also say how far
// the prompts were known, whether not even their last token was computed, and why known tokens
// were.
[[nodiscard]] nlohmann::ordered_json usage_json(std::span<const ChoiceLog> choices,
                                                size_t choices_per_prompt, bool cache_details);

[[nodiscard]] std::string_view finish_name(FinishReason reason);

// The stop token's id, the stop text, or null.
[[nodiscard]] nlohmann::ordered_json matched_stop(const Finish& finish);

// {"device": reused, "matched_tokens": .., "exact_repeat": .., "deferred_ms": .., "lost_tokens":
// ..}: how much of the prompt was there already, how far the cache knew it, and why the rest of
// that was computed again.
[[nodiscard]] nlohmann::ordered_json cache_details(const CacheReport& report);

// Appends {"token": .., "logprob": .., "bytes": [..], "top_logprobs": [..]}, as chat completions
// and responses show a token.
void append_token_logprob(const LogprobLog& log, size_t index, const TextCodec& codec,
                          std::string& out);

// Appends a logprob as a JSON number. A masked token's -inf is not JSON: it prints as -9999.
void append_logprob(float logprob, std::string& out);

}  // namespace heddle::server
