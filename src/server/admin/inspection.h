// SPDX-License-Identifier: Apache-2.0
// GET, POST /inspect: the requests that run and wait, the pools, the prefix tree and what a prompt
// would reuse of it (heddle/inspection.h), for the dashboard and for people with a question.
//
// It shows other callers' prompts: the route takes the admin key where there is one, and where the
// server has no keys, no web pages of other origins.
//
// Threading: free functions without state.
#pragma once

#include <memory>
#include <string_view>
#include <variant>

#include <nlohmann/json_fwd.hpp>

#include <heddle/engine.h>

#include "server/call/api_adapter.h"
#include "server/call/text_codec.h"
#include "server/http/body_sender.h"
#include "server/http/exchange.h"

namespace heddle::server {

// Of an empty body: the defaults. Fields: max_requests (0 to 1000), max_nodes (0 to 2000),
// max_node_tokens (0 to 64), prompt_token_ids, cache_salt and extra_key of the prompt. Where
// tenants are isolated, the prompt is looked up among those of the caller.
std::variant<InspectionOptions, ApiError> read_inspection(const CallContext& context,
                                                          std::string_view body);

// Called on the I/O thread; the body is written by a worker. `codec`, which turns tokens to text,
// outlives the workers.
void inspect(Engine& engine, const TextCodec& codec, const BodyThreads& threads,
             InspectionOptions options, std::shared_ptr<Exchange> exchange);

// The body.
[[nodiscard]] nlohmann::ordered_json inspection_json(const Inspection& seen,
                                                     const TextCodec& codec);

}  // namespace heddle::server
