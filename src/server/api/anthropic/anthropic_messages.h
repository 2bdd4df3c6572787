// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API. A request is brought
// into the form of /v1/chat/completions, whose fields and errors are then those of the answer:
//
//   system, blocks of text         messages; a block "x-anthropic-billing-header: .." is left out
//   document, search_result        text, as far as they are (document_part.h)
//   tool_use, tool_result          tool_calls of an assistant; messages of the role tool, which
//                                  come before the rest of the user's text
//   thinking, redacted_thinking    reasoning_content; dropped
//   blocks of Anthropic's tools, and unknown ones   text
//   tools, tool_choice             the same in OpenAI's form; tools that Anthropic's servers would
//                                  run are left out
//   thinking.type                  reasoning.enabled
//   stop_sequences, metadata.user_id   stop, user
//
// Threading: thread-safe: they run on the workers.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

PrepareResult prepare_messages(const CallContext& context, std::string_view body);

// {"input_tokens": N} of the prompt that the request would make.
AnswerResult answer_count_tokens(const CallContext& context, std::string_view body);

}  // namespace heddle::server
