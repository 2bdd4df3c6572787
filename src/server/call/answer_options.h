// SPDX-License-Identifier: Apache-2.0
// AnswerOptions: the server's defaults for answers, for all APIs; requests may override most of
// them.
//
// Threading: plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace heddle::server {

// The field in which a chat's answer has the reasoning. OpenAI's API has none; other servers use
// these two names.
enum class ReasoningField : uint8_t { kReasoningContent, kReasoning, kBoth };

// The treatment of a request whose output limit does not fit into the context with its prompt.
enum class MaxTokensOverflow : uint8_t {
  kByApi,  // as in the API's own server: Ollama's clamps, all others refuse
  kError,
  kClamp,  // the output limit is cut to what fits
};

struct AnswerOptions {
  int64_t stream_interval = 1;  // least number of tokens per streamed event

  int64_t max_logprobs = 20;  // most alternatives per token that a request may ask for, up to 20
  int64_t max_stop = 16;      // most stop texts of a request, up to 128

  // Streams of /generate send only new text and tokens, not everything so far.
  bool stream_increments = false;

  ReasoningField reasoning_field = ReasoningField::kReasoningContent;

  MaxTokensOverflow max_tokens_overflow = MaxTokensOverflow::kByApi;

  bool json_whitespace = true;  // white space is allowed between the tokens of constrained JSON

  // Sampling defaults: the model's generation_config.json, if it is used, overridden by
  // preferred_sampling_params, a JSON object (read_sampling_defaults()), which may be empty.
  bool use_generation_config = true;
  std::string preferred_sampling_params;

  // Default variables of the chat template, which requests override: a JSON object
  // (read_template_variables()); may be empty.
  std::string chat_template_kwargs;

  // Most tokens of reasoning per answer; none: only the request's own limit applies.
  std::optional<int64_t> max_thinking_tokens;

  // Text that the model is forced to write before its reasoning is closed at the limit
  // (read_budget_message()).
  std::string thinking_budget_message;
};

}  // namespace heddle::server
