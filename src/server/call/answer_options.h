// SPDX-License-Identifier: Apache-2.0
// AnswerOptions: how a server answers where the request does not say it, for all of its APIs.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace heddle::server {

// The name of a chat's reasoning. OpenAI's API has none; servers have these two.
enum class ReasoningField : uint8_t { kReasoningContent, kReasoning, kBoth };

// How a request is answered whose limit of output does not fit into the context with its prompt.
enum class MaxTokensOverflow : uint8_t {
  kByApi,  // as the API's own server has it: Ollama's clamps, all others refuse
  kError,
  kClamp,  // the answer may have what fits
};

struct AnswerOptions {
  int64_t stream_interval = 1;  // tokens of one streamed event, at least

  int64_t max_logprobs = 20;  // alternatives of a token that a request may ask for, up to 20
  int64_t max_stop = 16;      // stop texts that it may have, up to 128

  // /generate streams what is new, not everything so far.
  bool stream_increments = false;

  ReasoningField reasoning_field = ReasoningField::kReasoningContent;

  MaxTokensOverflow max_tokens_overflow = MaxTokensOverflow::kByApi;

  bool json_whitespace = true;  // may stand between the tokens of constrained JSON

  // How tokens are drawn where a request does not say it: the model's generation_config.json is
  // read or not, then these go before it. A JSON object (read_sampling_defaults()); may be empty.
  bool use_generation_config = true;
  std::string preferred_sampling_params;

  // Variables of the chat template that a request does not set itself: a JSON object
  // (read_template_variables()); may be empty.
  std::string chat_template_kwargs;

  // Tokens that an answer may reason, at most; none: no limit but the request's own.
  std::optional<int64_t> max_thinking_tokens;

  // Text that the model is forced to write before it closes reasoning that reached its limit
  // (read_budget_message()).
  std::string thinking_budget_message;
};

}  // namespace heddle::server
