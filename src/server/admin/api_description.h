// SPDX-License-Identifier: Apache-2.0
// The server's description of its own routes and of the fields of their bodies (body_fields.h): GET
// /openapi.json, and GET /docs, a page with the same content that works offline.
//
// Threading: free functions without state.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace heddle::server {

// The purpose of a route in one line; "" for a route without a summary, which a test reports.
[[nodiscard]] std::string_view route_summary(std::string_view path);

// The OpenAPI 3.1 description: paths, methods, which of them require a key, the fields of bodies,
// and the form of errors. Cost: built by each call, about 100 KB of JSON.
[[nodiscard]] nlohmann::ordered_json openapi_description(std::string_view version);

[[nodiscard]] std::string docs_page(std::string_view version);

}  // namespace heddle::server
