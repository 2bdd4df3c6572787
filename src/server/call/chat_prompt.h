// SPDX-License-Identifier: Apache-2.0
// The prompt of a chat: messages and tools, rendered by the model's template and encoded as tokens.
//
//   input_ids                    the prompt itself, instead of messages
//   messages                     see chat_messages.h
//   continue_final_message       the answer continues the last message, which is an assistant's
//   add_generation_prompt        false: the answer may begin with any role
//   reasoning_effort, reasoning  variables of the template: whether and how long to reason
//   chat_template_kwargs         other variables of the template; they override AnswerOptions'
//
// Threading: free functions without state; they run on the workers.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "server/call/api_adapter.h"
#include "server/call/field_reader.h"
#include "server/call/tool_fields.h"

namespace heddle::server {

struct ChatPrompt {
  std::vector<TokenId> ids;
  bool starts_in_reasoning = false;  // the prompt opens the answer's reasoning
  bool reasoning_is_closed = false;  // the prompt already contains the answer's reasoning, closed
};

// Accepted texts for `reasoning_effort`; numbers from 0 to 0.99 are accepted, too.
inline constexpr std::string_view kReasoningEfforts =
    "none, minimal, low, medium, high, xhigh, max";

[[nodiscard]] bool is_reasoning_effort(std::string_view word);

// Checks AnswerOptions::chat_template_kwargs. Error: kInvalidArgument if it is no JSON object, or
// names a variable for which requests have a field of their own.
Status check_template_variables(std::string_view text);

// Reads the prompt: `input_ids`, or `messages` and `tools` rendered by the template, encoded to at
// most `max_tokens` tokens.
std::optional<ApiError> read_chat_prompt(FieldReader& fields, const CallContext& context,
                                         const ToolFields& tools, size_t max_tokens,
                                         ChatPrompt& prompt);

}  // namespace heddle::server
