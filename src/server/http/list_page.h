// SPDX-License-Identifier: Apache-2.0
// One page of a list in OpenAI's form. Query parameters:
//
//   order  desc (the newest first; the default) or asc; of the lists that have it
//   limit  entries of the page, at most
//   after  the id of the entry before the first one
//
// And in Anthropic's:
//
//   limit      likewise
//   after_id   the id of the entry before the first one
//   before_id  the id of the entry after the last one
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <variant>

#include <nlohmann/json_fwd.hpp>

#include "server/http/api_error.h"
#include "server/http/http_message.h"

namespace heddle::server {

// Whether the newest entry comes first. Error: `order` has another value.
std::variant<bool, ApiError> read_newest_first(const HttpRequest& request);

struct ListForm {
  bool reversed = false;  // the page shows the last entry first
  int64_t default_limit = 20;
  int64_t max_limit = 100;
};

// {"object": "list", "data": [..], "has_more": .., "first_id": .., "last_id": ..} of an array of
// objects with ids. OpenAI's schema wants a text for both ids: of an empty page they are "".
// Error: `limit` or `after`. Cost: O(entries), and a copy of those that are shown.
std::variant<nlohmann::ordered_json, ApiError> page_of(const HttpRequest& request,
                                                       const nlohmann::ordered_json& entries,
                                                       const ListForm& form);

// {"data": [..], "has_more": .., "first_id": .., "last_id": ..} of such an array; of an empty page
// the ids are null. Error: `limit`, `after_id` or `before_id`. Cost: as page_of().
std::variant<nlohmann::ordered_json, ApiError> anthropic_page_of(
    const HttpRequest& request, const nlohmann::ordered_json& entries);

}  // namespace heddle::server
