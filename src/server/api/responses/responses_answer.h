// SPDX-License-Identifier: Apache-2.0
// The answer of /v1/responses: an answer's deltas as output items, in the events of a stream or as
// one response, which is then kept for those who ask for it by its id (response_store.h).
//
// Threading: as ApiAdapter; the functions have no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "server/api/openai/chat_answer.h"
#include "server/api/responses/response_store.h"
#include "server/api/responses/response_tools.h"
#include "server/call/api_adapter.h"

namespace heddle::server {

// The form of an answer of this API, beside what every chat has.
struct ResponsesAnswer {
  nlohmann::ordered_json request;  // fields of the request that the answer repeats
  ResponseTools tools = {};        // what calls are shown as
  std::shared_ptr<ResponseStore> keep_in = nullptr;  // null: the client wants it forgotten
  std::unique_ptr<const ResponseStore::Claim> claim = nullptr;    // of the id; null: it is not kept
  std::shared_ptr<const nlohmann::ordered_json> input = nullptr;  // StoredResponse; likewise
  size_t input_bytes = 0;
  std::string holder = {};
  bool is_background = false;  // what is kept takes the place of a response that runs
};

std::unique_ptr<ApiAdapter> make_responses_adapter(ChatAnswerOptions options,
                                                   ResponsesAnswer answer);

// The JSON of a response that has no output yet and runs.
[[nodiscard]] std::string running_response(const ChatAnswerOptions& options,
                                           const ResponsesAnswer& answer);

// The JSON of a response in another state: `status` and `error` take the place of those in `body`.
// Cost: a copy of the text; none of it is parsed.
[[nodiscard]] std::string with_state(std::string_view body, std::string_view status,
                                     const nlohmann::ordered_json& error = nullptr);

// The stream of a kept response, from the event after number `starting_after` on (-1: all of them).
// A response that was streamed has the events that it had then; one that was not has one delta for
// each text. Of a response that still runs the events so far, which are the first two.
// Cost: the body is parsed.
[[nodiscard]] std::string response_events(const StoredResponse& response, int64_t starting_after);

}  // namespace heddle::server
