// SPDX-License-Identifier: Apache-2.0
// JsonAnswer: a JSON body and what it shows. Short bodies are ordinary responses; long ones are
// made on workers while they are sent (body_sender.h).
//
// Threading: thread-compatible; send_json() is called on the I/O thread.
#pragma once

#include <memory>

#include "server/body_sender.h"
#include "server/exchange.h"
#include "server/json_pieces.h"

namespace heddle::server {

struct JsonAnswer {
  JsonPieces body;
  std::shared_ptr<const void> shown;  // keeps alive what `body` has views of
};

// Bodies up to here are written at once, on the I/O thread.
inline constexpr size_t kShortBodyBytes = 64 << 10;

// Answers 200 with `headers`.
void send_json(const BodyThreads& threads, std::shared_ptr<Exchange> exchange, HttpHeaders headers,
               JsonAnswer answer);

}  // namespace heddle::server
