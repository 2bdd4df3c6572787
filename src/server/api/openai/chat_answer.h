// SPDX-License-Identifier: Apache-2.0
// The answer of /v1/chat/completions: reasoning, content and tool calls, sent as the chunks of a
// stream or as one body. The other chat APIs use the same options (delta_adapter.h).
//
// Threading: as for ApiAdapter.
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
  std::string system_fingerprint;  // fingerprint of the weights; empty: not shown
  // The prompt's ids, if the answer shows them.
  std::optional<std::vector<TokenId>> prompt_token_ids;
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  AnswerStreamOptions stream;  // options of every choice, except the ids of its calls
  std::set<std::string, std::less<>> custom_tools;  // names of custom tools; see ToolFields::custom
};

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options);

}  // namespace heddle::server
