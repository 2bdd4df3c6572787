// SPDX-License-Identifier: Apache-2.0
// GET /health_generate on an idle engine: one token is really drawn.
//
// Threading: called on the I/O thread, which nothing here blocks.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <heddle/engine.h>

#include "server/engine_control.h"
#include "server/exchange.h"

namespace heddle::server {

// Runs a function on the I/O thread some seconds later. Called there.
using PostAfter = std::function<void(double seconds, std::function<void()>)>;

// Answers `healthy` when a token came within `limit_seconds`, else 503 with the reason.
void health_generate(Engine& engine, const Post& post, const PostAfter& post_after,
                     double limit_seconds, std::shared_ptr<Exchange> exchange,
                     HttpResponse healthy);

}  // namespace heddle::server
