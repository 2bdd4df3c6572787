// SPDX-License-Identifier: Apache-2.0
// POST /parse_function_call and /separate_reasoning: parse a model's answer that the caller has as
// text, with the parsers of the chat routes.
//
// Threading: thread-safe: the functions run on the workers. Cost: O(text).
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Converts {"text", "tools", "tool_call_parser"} to {"normal_text", "calls": [{"tool_index",
// "name", "parameters"}]}. `tool_index` counts the calls from 0; `parameters` is the text of a JSON
// object.
AnswerResult answer_parse_function_call(const CallContext& context, std::string_view body);

// Converts {"text", "reasoning_parser"} to {"reasoning_text", "text"}.
AnswerResult answer_separate_reasoning(const CallContext& context, std::string_view body);

}  // namespace heddle::server
