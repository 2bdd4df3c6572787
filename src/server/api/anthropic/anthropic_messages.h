// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API. A request is converted
// to the form of /v1/chat/completions, whose fields and errors then apply:
//
//   system, blocks of text         messages; a block "x-anthropic-billing-header: .." is dropped
//   document, search_result        text, if they contain text (document_part.h)
//   tool_use, tool_result          tool_calls of an assistant; messages of the role tool, which
//                                  precede the rest of the user's text
//   thinking, redacted_thinking    reasoning_content; dropped
//   blocks of Anthropic's tools, and unknown ones   text
//   tools, tool_choice             the same in OpenAI's form; tools that Anthropic's servers would
//                                  run are dropped
//   thinking.type                  reasoning.enabled
//   stop_sequences, metadata.user_id   stop, user
//
// Threading: thread-safe: the functions run on the workers.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

PrepareResult prepare_messages(const CallContext& context, std::string_view body);

// Answers {"input_tokens": N} for the prompt that the request would have.
AnswerResult answer_count_tokens(const CallContext& context, std::string_view body);

}  // namespace heddle::server
