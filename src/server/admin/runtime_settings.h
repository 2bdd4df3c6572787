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

// {"log_level": "debug" | "info" | "warning" | "error", "log_requests": true | false,
// "log_requests_level": 0 to 3, "log_requests_format": "text" | "json"}, each as it is where it is
// left out. Returns all four from now on; "" changes nothing, and neither does a wrong field.
std::variant<nlohmann::ordered_json, ApiError> configure_logging(std::string_view body,
                                                                 RequestLog& request_log);

// {"server_args": {"log_level": ..}}: other options are refused.
std::variant<nlohmann::ordered_json, ApiError> set_internal_state(std::string_view body);

// {"forward_sleep_time": SECONDS}; null or 0 ends it.
std::variant<nlohmann::ordered_json, ApiError> slow_down(std::string_view body, Engine& engine);

}  // namespace heddle::server
