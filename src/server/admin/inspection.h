// SPDX-License-Identifier: Apache-2.0
// GET, POST /inspect: the requests that run and wait, the memory pools, the prefix tree and the
// part of it that a prompt would reuse (heddle/inspection.h), for the dashboard and for operators.
//
// It shows other users' prompts. The route therefore requires the admin key, if one is set; a
// server without keys refuses it to web pages of other origins.
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

// Reads the options; an empty body means the defaults. Fields: max_requests (0 to 1000), max_nodes
// (0 to 2000), max_node_tokens (0 to 64), prompt_token_ids, cache_salt and extra_key of the prompt.
// If tenants are isolated, the prompt is looked up among those of the caller's tenant.
std::variant<InspectionOptions, ApiError> read_inspection(const CallContext& context,
                                                          std::string_view body);

// Answers the request. Called on the I/O thread; a worker writes the body. `codec` converts tokens
// to text and outlives the workers.
void inspect(Engine& engine, const TextCodec& codec, const BodyThreads& threads,
             InspectionOptions options, std::shared_ptr<Exchange> exchange);

// The body of the answer.
[[nodiscard]] nlohmann::ordered_json inspection_json(const Inspection& seen,
                                                     const TextCodec& codec);

}  // namespace heddle::server
