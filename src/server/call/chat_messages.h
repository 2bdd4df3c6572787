// SPDX-License-Identifier: Apache-2.0
// Chat messages as clients send them, checked and brought into one shape: lower-case roles; content
// as a text or a list of {"type": "text", "text": TEXT}; calls in `tool_calls`, with arguments as
// they were sent. A history is taken, however broken (history_repair.h); chat/conversation.h brings
// it into the prompt. Documents that are text are text (document_part.h).
//
// Threading: free functions without state.
#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "server/call/api_adapter.h"
#include "server/http/api_error.h"

namespace heddle::server {

// `messages` must be a list and not empty. Parts that are no text become text in a history; after
// the last answer, call or result they are errors.
std::optional<ApiError> normalise_messages(const CallContext& context,
                                           const nlohmann::ordered_json& messages,
                                           nlohmann::ordered_json& normalised);

// Checks the list of {"type": "function", "function": {...}} and {"type": "custom", "custom":
// {...}}.
std::optional<ApiError> check_tools(const nlohmann::ordered_json& tools);

}  // namespace heddle::server
