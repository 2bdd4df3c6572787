// SPDX-License-Identifier: Apache-2.0
// Chat messages as clients send them, checked and brought into the one shape templates expect:
// content as text, lower-case roles, tool-call arguments as objects.
//
// Threading: free functions without state.
#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "server/api_error.h"

namespace heddle::server {

// `messages` must be a list and not empty.
std::optional<ApiError> normalise_messages(const nlohmann::ordered_json& messages,
                                           nlohmann::ordered_json& normalised);

// Checks the list of {"type": "function", "function": {...}}.
std::optional<ApiError> check_tools(const nlohmann::ordered_json& tools);

}  // namespace heddle::server
