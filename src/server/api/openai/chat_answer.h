// SPDX-License-Identifier: Apache-2.0
// The answer of /v1/chat/completions: the events of a call as reasoning, content and tool calls, in
// chunks of a stream or as one body. The other chat APIs take the same options (delta_adapter.h).
//
// Threading: as ApiAdapter.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/call/answer_stream.h"
#include "server/call/api_adapter.h"
#include "server/call/call_fields.h"

namespace heddle::server {

struct ChatAnswerOptions : OpenAiAnswerOptions {
  std::string system_fingerprint;                        // empty: not shown
  std::optional<std::vector<TokenId>> prompt_token_ids;  // to be shown
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  AnswerStreamOptions stream;                       // of every choice, which get ids of their own
  std::set<std::string, std::less<>> custom_tools;  // ToolFields::custom
};

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options);

}  // namespace heddle::server
