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
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "server/api/openai/chat_answer.h"
#include "server/call/api_adapter.h"
#include "server/call/sampling_fields.h"

namespace heddle::server {

using MakeChatAdapter = std::function<std::unique_ptr<ApiAdapter>(ChatAnswerOptions)>;

// A call of any chat API, brought into the form of this one but for the names of `spelling`;
// `make_adapter` writes its answer.
PrepareResult prepare_chat_call(const CallContext& context, const nlohmann::ordered_json& body,
                                const MakeChatAdapter& make_adapter,
                                SamplingSpelling spelling = SamplingSpelling::kOpenAi);

PrepareResult prepare_chat(const CallContext& context, std::string_view body);

}  // namespace heddle::server
