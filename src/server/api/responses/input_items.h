// SPDX-License-Identifier: Apache-2.0
// GET /v1/responses/ID/input_items: the items that a kept response answered, those of the responses
// before it included, as one of OpenAI's lists. Query parameters:
//
//   order  desc (the newest first; the default) or asc
//   limit  1 to 100 items; 20
//   after  the id of the item before the first one
//
// Threading: free functions without state; answer_input_items() runs on the workers.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Whether the request is for this route.
[[nodiscard]] bool asks_for_input_items(const HttpRequest& request);

// Error: 404 for an unknown response and one of another holder. Cost: O(items), and a copy of those
// that are shown.
AnswerResult answer_input_items(const CallContext& context, std::string_view body);

}  // namespace heddle::server
