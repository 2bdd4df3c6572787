// SPDX-License-Identifier: Apache-2.0
// The answer of /v1/responses: an answer's deltas as output items, sent as the events of a stream
// or as one response, which is then stored for requests by its id (response_store.h).
//
// Threading: as for ApiAdapter; the functions have no state.
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

// Properties of an answer of this API, besides those of every chat.
struct ResponsesAnswer {
  nlohmann::ordered_json request;  // fields of the request that the answer repeats
  ResponseTools tools = {};        // the request's tools, by which calls are shown
  // Null: the client does not want the response stored.
  std::shared_ptr<ResponseStore> keep_in = nullptr;
  // Reservation of the id; null: the response is not stored.
  std::unique_ptr<const ResponseStore::Claim> claim = nullptr;
  // See StoredResponse::input; null: the response is not stored.
  std::shared_ptr<const nlohmann::ordered_json> input = nullptr;
  size_t input_bytes = 0;
  std::string holder = {};
  bool is_background = false;  // the stored response replaces a running one
};

std::unique_ptr<ApiAdapter> make_responses_adapter(ChatAnswerOptions options,
                                                   ResponsesAnswer answer);

// The JSON of a running response without output.
[[nodiscard]] std::string running_response(const ChatAnswerOptions& options,
                                           const ResponsesAnswer& answer);

// The JSON of a response in another state: `status` and `error` replace those in `body`. Cost: a
// copy of the text, which is not parsed.
[[nodiscard]] std::string with_state(std::string_view body, std::string_view status,
                                     const nlohmann::ordered_json& error = nullptr);

// The stream of a stored response, beginning after event number `starting_after` (-1: all events).
// A response that was streamed has the same events as then; one that was not has one delta for each
// text. A response that still runs has its first two events. Cost: the body is parsed.
[[nodiscard]] std::string response_events(const StoredResponse& response, int64_t starting_after);

}  // namespace heddle::server
