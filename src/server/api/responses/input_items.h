// SPDX-License-Identifier: Apache-2.0
// GET /v1/responses/ID/input_items: the input items of a stored response, including those of the
// responses before it, as one of OpenAI's lists. Query parameters:
//
//   order  desc (the newest first; the default) or asc
//   limit  1 to 100 items; default 20
//   after  the id of the item just before the page
//
// Threading: free functions without state; answer_input_items() runs on the workers.
#pragma once

#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Whether the request is for this route.
[[nodiscard]] bool asks_for_input_items(const HttpRequest& request);

// Answers the request. Error: 404 for an unknown response and for one of another holder. Cost:
// O(items), and a copy of the items shown.
AnswerResult answer_input_items(const CallContext& context, std::string_view body);

}  // namespace heddle::server
