// SPDX-License-Identifier: Apache-2.0
// GET /get_server_info: what the server runs with, by the names of its options, and what it has
// done, by the names SGLang's clients look for.
//
// Threading: a free function without state.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>

#include "server/server_options.h"

namespace heddle::server {

// `configuration` as Server::start_serving() got it, `status` as /health says it.
[[nodiscard]] nlohmann::ordered_json server_info(const ServerOptions& options,
                                                 const nlohmann::ordered_json& configuration,
                                                 const Engine& engine, const EngineStats& stats,
                                                 std::string_view status);

}  // namespace heddle::server
