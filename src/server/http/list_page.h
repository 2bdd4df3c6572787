// SPDX-License-Identifier: Apache-2.0
// One page of a list in the form of OpenAI's API. Query parameters:
//
//   order  desc (the newest first; the default) or asc; only for lists that support it
//   limit  most entries of the page
//   after  the id of the entry just before the page
//
// And in the form of Anthropic's API:
//
//   limit      most entries of the page
//   after_id   the id of the entry just before the page
//   before_id  the id of the entry just after the page
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <variant>

#include <nlohmann/json_fwd.hpp>

#include "server/http/api_error.h"
#include "server/http/http_message.h"

namespace heddle::server {

// Reads `order`: whether the newest entry comes first. Error: `order` has an unknown value.
std::variant<bool, ApiError> read_newest_first(const HttpRequest& request);

struct ListForm {
  bool reversed = false;  // the page shows its last entry first
  int64_t default_limit = 20;
  int64_t max_limit = 100;
};

// One page as {"object": "list", "data": [..], "has_more": .., "first_id": .., "last_id": ..} of an
// array of objects with ids. OpenAI's schema requires a text for both ids, so those of an empty
// page are "". Error: a bad `limit` or `after`. Cost: O(entries), and a copy of the entries shown.
std::variant<nlohmann::ordered_json, ApiError> page_of(const HttpRequest& request,
                                                       const nlohmann::ordered_json& entries,
                                                       const ListForm& form);

// One page as {"data": [..], "has_more": .., "first_id": .., "last_id": ..} of such an array; the
// ids of an empty page are null. Error: a bad `limit`, `after_id` or `before_id`. Cost: as
// page_of().
std::variant<nlohmann::ordered_json, ApiError> anthropic_page_of(
    const HttpRequest& request, const nlohmann::ordered_json& entries);

}  // namespace heddle::server
