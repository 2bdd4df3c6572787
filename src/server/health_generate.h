// SPDX-License-Identifier: Apache-2.0
// GET /health_generate on an idle engine: one token is really drawn.
//
// Threading: called on the I/O thread, which nothing here blocks.
#pragma once

#include <functional>
#include <memory>

#include <heddle/engine.h>

#include "server/engine_control.h"
#include "server/exchange.h"

namespace heddle::server {

// Runs a function on the I/O thread some seconds later. Called there.
using PostAfter = std::function<void(double seconds, std::function<void()>)>;

// Answers what `health` says by then when a token came within `limit_seconds`, or when there is a
// reason that none did: the engine is paused, its queue is full, it makes steps for others. Else
// 503 `stuck`, with what was missed. `health` is called on the I/O thread.
void health_generate(Engine& engine, const Post& post, const PostAfter& post_after,
                     double limit_seconds, std::shared_ptr<Exchange> exchange,
                     std::function<HttpResponse()> health);

}  // namespace heddle::server
