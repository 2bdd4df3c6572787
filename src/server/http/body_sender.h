// SPDX-License-Identifier: Apache-2.0
// Sends an answer's body that is made piece by piece on worker threads, as fast as the client takes
// it. The I/O thread only passes finished pieces on, so that a body of any length costs it no more
// than its bytes.
//
// Threading: send_body() and send_json() are called on the I/O thread.
// Memory:    of the body, the exchange's limit of unsent bytes and one piece.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "server/http/exchange.h"
#include "server/http/json_pieces.h"

namespace heddle::server {

// About the size of a piece: large beside the cost of passing it on, small beside a core's second.
inline constexpr size_t kBodyPieceBytes = 256 << 10;

// A body that is made while it is sent.
class BodySource {
 public:
  virtual ~BodySource() = default;

  // Appends the next bytes, about kBodyPieceBytes, to the empty `piece`. False when they were the
  // last. On a worker thread, each call after the one before has returned. The source is destroyed
  // on a worker thread, too, unless the server stops.
  [[nodiscard]] virtual bool next(std::string& piece) = 0;
};

// How functions reach the threads.
struct BodyThreads {
  // Runs a function on a worker thread. False: there is no room for it. A piece is then made by the
  // calling thread.
  std::function<bool(std::function<void()>)> run_on_worker;

  // Runs a function on the I/O thread.
  std::function<void(std::function<void()>)> post;
};

// Writes the pieces of `source` to `exchange`, which has been opened, and finishes it. Sets the
// exchange's on_drained. When a piece cannot be made for lack of memory, the answer is broken off.
void send_body(const BodyThreads& threads, std::shared_ptr<Exchange> exchange,
               std::unique_ptr<BodySource> source);

// A JSON body and what it shows.
struct JsonAnswer {
  JsonPieces body;
  std::shared_ptr<const void> shown;  // keeps alive what `body` has views of
};

// Bodies up to here are written at once, on the I/O thread.
inline constexpr size_t kShortBodyBytes = 64 << 10;

// Answers 200 with `headers`: a short body as an ordinary response, a long one by send_body().
void send_json(const BodyThreads& threads, std::shared_ptr<Exchange> exchange, HttpHeaders headers,
               JsonAnswer answer);

}  // namespace heddle::server
