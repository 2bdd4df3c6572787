// SPDX-License-Identifier: Apache-2.0
// Settings that operators change while the server runs: POST /configure_logging,
// /set_internal_state and /slow_down.
//
// Threading: free functions over thread-safe state.
#pragma once

#include <string_view>
#include <variant>

#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "server/call/request_log.h"
#include "server/http/api_error.h"

namespace heddle::server {

// POST /configure_logging with {"log_level": "debug" | "info" | "warning" | "error",
// "log_requests": true | false, "log_requests_level": 0 to 3, "log_requests_format": "text" |
// "json"}. Missing fields are unchanged. Returns all four new values. An empty body or a wrong
// field changes nothing.
std::variant<nlohmann::ordered_json, ApiError> configure_logging(std::string_view body,
                                                                 RequestLog& request_log);

// POST /set_internal_state with {"server_args": {"log_level": ..}}; other options are refused.
std::variant<nlohmann::ordered_json, ApiError> set_internal_state(std::string_view body);

// POST /slow_down with {"forward_sleep_time": SECONDS}: delays every step; null or 0 ends it.
std::variant<nlohmann::ordered_json, ApiError> slow_down(std::string_view body, Engine& engine);

}  // namespace heddle::server
