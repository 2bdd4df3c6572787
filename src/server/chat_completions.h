// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions.
//
// Tools are rendered into the prompt by the model's template. The answer is sent as
// reasoning, content and tool calls, by the formats that the model writes them in.
//
// Threading: prepare_chat() is thread-safe: it runs on the workers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/answer_stream.h"
#include "server/api_adapter.h"
#include "server/call_fields.h"
#include "server/tool_fields.h"

namespace heddle::server {

// The form of an answer; apart from the request so that recorded events can test it.
struct ChatAnswerOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  std::string weight_version = "default";
  std::string system_fingerprint;  // empty: not shown
  size_t num_choices = 1;
  StreamOptions streaming;
  bool logprobs = false;
  bool return_token_ids = false;
  bool cache_details = false;                            // in the usage
  std::optional<std::vector<TokenId>> prompt_token_ids;  // to be shown
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  AnswerStreamOptions stream;        // of every choice, which get ids of their own
  const TextCodec* codec = nullptr;  // outlives the adapter
};

std::unique_ptr<ApiAdapter> make_chat_adapter(ChatAnswerOptions options);

struct ChatPrompt {
  std::vector<TokenId> ids;
  bool starts_in_reasoning = false;  // the template opened the answer's reasoning
  bool reasoning_is_closed = false;  // the template wrote it to its end
};

// The prompt: `input_ids`, or `messages` and `tools` through the template, encoded to at most
// `max_tokens`.
std::optional<ApiError> read_chat_prompt(FieldReader& fields, const CallContext& context,
                                         const ToolFields& tools, size_t max_tokens,
                                         ChatPrompt& prompt);

using MakeChatAdapter = std::function<std::unique_ptr<ApiAdapter>(ChatAnswerOptions)>;

// A call of any chat API, brought into the form of this one; `make_adapter` writes its answer.
PrepareResult prepare_chat_call(const CallContext& context, const nlohmann::ordered_json& body,
                                const MakeChatAdapter& make_adapter);

PrepareResult prepare_chat(const CallContext& context, std::string_view body);

}  // namespace heddle::server
