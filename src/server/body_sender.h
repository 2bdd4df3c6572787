// SPDX-License-Identifier: Apache-2.0
// Sends an answer's body that is made piece by piece on worker threads, as fast as the client takes
// it. The I/O thread only passes finished pieces on, so that a body of any length costs it no more
// than its bytes.
//
// Memory: of the body, the exchange's limit of unsent bytes and one piece.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "server/exchange.h"

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
// Called on the I/O thread.
void send_body(const BodyThreads& threads, std::shared_ptr<Exchange> exchange,
               std::unique_ptr<BodySource> source);

}  // namespace heddle::server
