// SPDX-License-Identifier: Apache-2.0
// Checks chat messages and converts them to one form: lower-case roles; content as a text or a list
// of {"type": "text", "text": TEXT}; calls in `tool_calls`, with their arguments as sent. A history
// is accepted however broken it is (history_repair.h); chat/conversation.h puts it into the prompt.
// Text documents become text (document_part.h).
//
// Threading: free functions without state.
#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "server/call/api_adapter.h"
#include "server/http/api_error.h"

namespace heddle::server {

// Converts `messages`, which must be a list and not empty. Parts that are no text become text in
// the history; after the last answer, call or result they are errors.
std::optional<ApiError> normalise_messages(const CallContext& context,
                                           const nlohmann::ordered_json& messages,
                                           nlohmann::ordered_json& normalised);

// Checks the list of tools: {"type": "function", "function": {...}} and {"type": "custom",
// "custom": {...}}.
std::optional<ApiError> check_tools(const nlohmann::ordered_json& tools);

}  // namespace heddle::server
