// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions.
//
// The model's template renders tools into the prompt. The answer is split into reasoning, content
// and tool calls by the formats in which the model writes them.
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

// Prepares a call of any chat API that has been converted to the form of this one, except the field
// names of `spelling`. `make_adapter` makes the adapter that writes its answer.
PrepareResult prepare_chat_call(const CallContext& context, const nlohmann::ordered_json& body,
                                const MakeChatAdapter& make_adapter,
                                SamplingSpelling spelling = SamplingSpelling::kOpenAi);

PrepareResult prepare_chat(const CallContext& context, std::string_view body);

}  // namespace heddle::server
