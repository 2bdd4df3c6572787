// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses: OpenAI's Responses API, as an adapter over chat completions. Its input items
// become the messages of a chat, after those of `previous_response_id`; `instructions` lead them
// and are not carried over. With `background` the client gets an answer at once, and asks for the
// response by its id.
//
// Threading: prepare_responses() is thread-safe: it runs on the workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/call/api_adapter.h"

namespace heddle::server {

// The largest JSON of what a response repeats of its request.
inline constexpr size_t kMaxRepeatedBytes = size_t{4} << 20;

// Tokens of a response that shows logprobs, and their alternatives, together: some 600 MiB while it
// is written.
inline constexpr int64_t kMaxResponseLogprobs = int64_t{1} << 21;

// Error: also request_too_large, where the response would repeat more than kMaxRepeatedBytes.
PrepareResult prepare_responses(const CallContext& context, std::string_view body);

// POST /v1/responses/input_tokens: the tokens of the prompt that such a request would have.
AnswerResult answer_response_tokens(const CallContext& context, std::string_view body);

}  // namespace heddle::server
