// SPDX-License-Identifier: Apache-2.0
// Operators' commands to the engine: empty the cache, pause, continue, abort.
//
// Threading: called on the I/O thread and never block it: the engine answers on its own thread, and
//            `post` moves the answer back to the I/O thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <heddle/engine.h>

#include "server/http/api_error.h"
#include "server/http/exchange.h"

namespace heddle::server {

using Post = std::function<void(std::function<void()>)>;

// GET, POST /flush_cache?timeout=SECONDS: empties the prefix cache.
void flush_cache(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange);

// Reads the mode from the body of /pause_generation.
std::variant<PauseMode, ApiError> read_pause_mode(std::string_view body);

struct AbortOrder {
  std::string id;    // id of the request to abort
  bool all = false;  // true: abort all requests and ignore `id`
};

std::variant<AbortOrder, ApiError> read_abort(std::string_view body);

// POST /pause_generation {"mode": "abort" | "retract" | "in_place"}; without a mode "abort".
// Answered once the engine computes nothing any more.
void pause_generation(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange);

// POST /continue_generation: ends a pause.
void continue_generation(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange);

}  // namespace heddle::server
