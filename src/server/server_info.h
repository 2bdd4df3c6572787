// SPDX-License-Identifier: Apache-2.0
// GET /get_server_info: what the server runs with, by the names of its options, and what it has
// done, by the names SGLang's clients look for; GET /get_load and /v1/loads: how busy it is, for
// balancers.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
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

// The moment of a load.
struct LoadClock {
  double steady_seconds = 0;  // of a clock that is never set
  int64_t unix_seconds = 0;   // since 1970
};

// [{"rid", "dp_rank", "num_reqs", "num_waiting_reqs", "num_tokens", "ts_tic"}]: one entry, as this
// process has one engine.
[[nodiscard]] nlohmann::ordered_json load_list(const EngineStats& stats, const LoadClock& now);

// {"timestamp", "version", "dp_rank_count", "loads": [..], "aggregate": {..}}
[[nodiscard]] nlohmann::ordered_json load_report(const Engine& engine, const EngineStats& stats,
                                                 std::string_view version, const LoadClock& now);

}  // namespace heddle::server
