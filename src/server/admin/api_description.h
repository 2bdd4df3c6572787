// SPDX-License-Identifier: Apache-2.0
// The server's description of its own routes and of the fields they take (body_fields.h):
// GET /openapi.json, and GET /docs, a page of the same that works offline.
//
// Threading: free functions without state.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace heddle::server {

// The purpose of a route in one line; "" for one that has no summary, which a test looks for.
[[nodiscard]] std::string_view route_summary(std::string_view path);

// OpenAPI 3.1: paths, methods, which of them ask for a key, the fields of bodies, and the form of
// errors. Cost: made anew by each call, about 100 KB of JSON.
[[nodiscard]] nlohmann::ordered_json openapi_description(std::string_view version);

[[nodiscard]] std::string docs_page(std::string_view version);

}  // namespace heddle::server
