// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses: OpenAI's Responses API, as an adapter over chat completions. Its input items
// become the messages of a chat, after those of `previous_response_id`; `instructions` lead them
// and are not carried over. Tools that OpenAI's servers would run are left out. With `background`
// the client gets an answer at once, and asks for the response by its id.
//
// Threading: prepare_responses() is thread-safe: it runs on the workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "server/api_adapter.h"
#include "server/chat_answer.h"
#include "server/response_store.h"

namespace heddle::server {

// The form of an answer of this API, beside what every chat has.
struct ResponsesAnswer {
  nlohmann::ordered_json request;          // fields of the request that the answer repeats
  nlohmann::ordered_json messages;         // of the chat so far, without instructions
  std::shared_ptr<ResponseStore> keep_in;  // null: the client wants it forgotten
  std::string holder;                      // StoredResponse
  bool is_background = false;              // what is kept takes the place of a response that runs
};

std::unique_ptr<ApiAdapter> make_responses_adapter(ChatAnswerOptions options,
                                                   ResponsesAnswer answer);

// The largest JSON of what a response repeats of its request.
inline constexpr size_t kMaxRepeatedBytes = size_t{4} << 20;

// Tokens of a response that shows logprobs, and their alternatives, together: some 600 MiB while it
// is written.
inline constexpr int64_t kMaxResponseLogprobs = int64_t{1} << 21;

// The JSON of a response in another state: `status` and `error` take the place of those in `body`.
// Cost: a copy of the text; none of it is parsed.
[[nodiscard]] std::string with_state(std::string_view body, std::string_view status,
                                     const nlohmann::ordered_json& error = nullptr);

// Error: also request_too_large, where the response would repeat more than kMaxRepeatedBytes.
PrepareResult prepare_responses(const CallContext& context, std::string_view body);

}  // namespace heddle::server
