// SPDX-License-Identifier: Apache-2.0
// GET /get_server_info: what the server runs with and what it has done, by the names SGLang's
// clients look for and, where those have none, our own. Keys are not among it.
//
// Threading: a free function without state.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>

#include "server/effective_option.h"
#include "server/server_options.h"

namespace heddle::server {

// `status` is that of /health.
[[nodiscard]] nlohmann::ordered_json server_info(const ServerOptions& options,
                                                 const EffectiveOptions& effective,
                                                 const Engine& engine, std::string_view status);

}  // namespace heddle::server
