// SPDX-License-Identifier: Apache-2.0
// The answer of /v1/messages: an answer's deltas as content blocks (thinking, text, tool_use), sent
// as the events of a stream or as one message.
//
// Threading: as for ApiAdapter.
#pragma once

#include <memory>

#include "server/api/openai/chat_answer.h"
#include "server/call/api_adapter.h"

namespace heddle::server {

std::unique_ptr<ApiAdapter> make_messages_adapter(ChatAnswerOptions options);

}  // namespace heddle::server
