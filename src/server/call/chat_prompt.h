// SPDX-License-Identifier: Apache-2.0
// The prompt of a chat: messages and tools through the model's template, then as tokens.
//
//   input_ids                    the prompt itself, in place of messages
//   messages                     chat_messages.h
//   continue_final_message       the answer goes on from the last message, an assistant's
//   add_generation_prompt        false: the answer may begin as any role
//   reasoning_effort, reasoning  variables of the template: whether and how long to reason
//   chat_template_kwargs         other variables of the template, before AnswerOptions' own
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
  bool starts_in_reasoning = false;  // the template opened the answer's reasoning
  bool reasoning_is_closed = false;  // the template wrote it to its end
};

// The words that say how long to reason; numbers from 0 to 0.99 do, too.
inline constexpr std::string_view kReasoningEfforts =
    "none, minimal, low, medium, high, xhigh, max";

[[nodiscard]] bool is_reasoning_effort(std::string_view word);

// AnswerOptions::chat_template_kwargs. Error: kInvalidArgument for what is no JSON object, and for
// a variable that requests have fields of their own for.
Status check_template_variables(std::string_view text);

// The prompt: `input_ids`, or `messages` and `tools` through the template, encoded to at most
// `max_tokens`.
std::optional<ApiError> read_chat_prompt(FieldReader& fields, const CallContext& context,
                                         const ToolFields& tools, size_t max_tokens,
                                         ChatPrompt& prompt);

}  // namespace heddle::server
