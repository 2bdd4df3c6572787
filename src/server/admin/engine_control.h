// SPDX-License-Identifier: Apache-2.0
// Operators' orders to the engine: to empty the cache, to pause, to go on.
//
// Threading: called on the I/O thread, which nothing here blocks: the engine answers on a thread of
// its own, and `post` takes the answer back.
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

// GET, POST /flush_cache?timeout=SECONDS
void flush_cache(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange);

// The mode that a body asks for.
std::variant<PauseMode, ApiError> read_pause_mode(std::string_view body);

struct AbortOrder {
  std::string id;    // of what shall end
  bool all = false;  // everything, whatever the id
};

std::variant<AbortOrder, ApiError> read_abort(std::string_view body);

// POST /pause_generation {"mode": "abort" | "retract" | "in_place"}; abort without a mode. Answered
// when nothing is computed any more.
void pause_generation(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange);

// POST /continue_generation
void continue_generation(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange);

}  // namespace heddle::server
