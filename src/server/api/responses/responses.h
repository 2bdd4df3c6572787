// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses: OpenAI's Responses API, as an adapter over chat completions. Its input items
// become the messages of a chat, after those of `previous_response_id`. `instructions` precede them
// and are not stored for later responses. With `background` the client gets an answer at once and
// fetches the response later by its id.
//
// Threading: prepare_responses() is thread-safe: it runs on the workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// Limit for the JSON of the request's fields that the response repeats.
inline constexpr size_t kMaxRepeatedBytes = size_t{4} << 20;

// Limit for the tokens of a response with log probabilities, counting their alternatives; some 600
// MiB of memory while it is written.
inline constexpr int64_t kMaxResponseLogprobs = int64_t{1} << 21;

// Error: also request_too_large, if the response would repeat more than kMaxRepeatedBytes.
PrepareResult prepare_responses(const CallContext& context, std::string_view body);

// POST /v1/responses/input_tokens: counts the tokens of the prompt that such a request would have.
AnswerResult answer_response_tokens(const CallContext& context, std::string_view body);

}  // namespace heddle::server
