// SPDX-License-Identifier: Apache-2.0
// Sends an answer whose body is produced piece by piece on worker threads, as fast as the client
// reads. The I/O thread only forwards finished pieces, so that a long body costs it no more than
// copying bytes.
//
// Threading: send_body() and send_json() are called on the I/O thread.
// Memory:    the exchange's limit of unsent bytes plus one piece.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "server/http/exchange.h"
#include "server/http/json_pieces.h"

namespace heddle::server {

// Approximate size of a piece, in bytes: large compared with the cost of forwarding it, and made in
// a small part of a second.
inline constexpr size_t kBodyPieceBytes = 256 << 10;

// Produces a body while it is being sent.
class BodySource {
 public:
  virtual ~BodySource() = default;

  // Appends the next bytes, about kBodyPieceBytes, to the empty `piece`. Returns false when these
  // were the last. Called on a worker thread, one call at a time. The source is destroyed on a
  // worker thread, too, unless the server stops.
  [[nodiscard]] virtual bool next(std::string& piece) = 0;
};

// Functions that run work on the two kinds of threads.
struct BodyThreads {
  // Runs a function on a worker thread. Returns false if the queue is full; the calling thread then
  // makes the piece itself.
  std::function<bool(std::function<void()>)> run_on_worker;

  // Runs a function on the I/O thread.
  std::function<void(std::function<void()>)> post;
};

// Writes the pieces of `source` to `exchange`, which has been opened, and finishes it. Sets the
// exchange's on_drained. If memory for a piece is short, the answer is broken off.
void send_body(const BodyThreads& threads, std::shared_ptr<Exchange> exchange,
               std::unique_ptr<BodySource> source);

// A JSON body and the data to which it refers.
struct JsonAnswer {
  JsonPieces body;
  std::shared_ptr<const void> shown;  // keeps alive the data that `body` has views of
};

// Bodies up to this many bytes are written at once, on the I/O thread.
inline constexpr size_t kShortBodyBytes = 64 << 10;

// Answers 200 with `headers`: a short body as one response, a long one through send_body().
void send_json(const BodyThreads& threads, std::shared_ptr<Exchange> exchange, HttpHeaders headers,
               JsonAnswer answer);

}  // namespace heddle::server
