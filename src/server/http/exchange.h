// SPDX-License-Identifier: Apache-2.0
// Exchange: one HTTP request and the answer it is waiting for. An answer is one of
//
//   respond(): the whole answer, a short one or one that a worker has made;
//   open_body(), write() ..., finish(): a body that is made while it is sent;
//   open_stream(), write() ..., finish(): a stream of events. The status line is held back until
//     the first write, so that an error met before that can still be an ordinary response.
//
// Back-pressure: bytes that the client has not taken yet are kept. Once they are more than the
// server's limit, backed_up() is true, and a caller with much to write waits for on_drained. A
// write of any size is sent; a client that takes no bytes for the server's write timeout is cut
// off, and gone() then.
//
// Threading: confined to the I/O thread, except for gone() and, until release_body(), request().
// Bounds:    the limit and one write, as long as callers heed backed_up().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "server/http/body_budget.h"
#include "server/http/http_message.h"

namespace heddle::server {

enum class StreamFormat : uint8_t {
  kEvents,  // server-sent events
  kLines,   // a JSON value on each line (application/x-ndjson)
};

class Exchange {
 public:
  explicit Exchange(HttpRequest request) : request_(std::move(request)) {}

  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] const HttpRequest& request() const { return request_; }

  // Frees the body once it is understood: an answer can take minutes.
  void release_body() {
    std::string().swap(request_.body);
    body_lease.release();
  }

  // Whether the request counts for its key. It does not any more then: another one does instead.
  [[nodiscard]] bool hand_over_count() { return std::exchange(request_.counted, false); }

  // For the log's line on the request, once it is answered.
  void note_speed(std::string speed) { request_.speed = std::move(speed); }

  // The id that its body names takes the place of the header's, for the client and in the log.
  void rename(const std::string& id) {
    request_.id = id;
    for (auto& [name, value] : common_headers) {
      if (name == "x-request-id") value = id;
    }
  }

  // True once the client went away: its answer need not be computed any more.
  [[nodiscard]] bool gone() const { return gone_.load(std::memory_order_relaxed); }

  // Called at most once, on the I/O thread, if the client goes away before its answer is complete.
  std::function<void()> on_gone;

  // Called on the I/O thread when backed_up() has become false again: write on. Called once more,
  // after on_gone, when the client goes away.
  std::function<void()> on_drained;

  // The body's share of the bytes that may be kept at once.
  BodyLease body_lease;

  // Sent with every answer of this exchange: CORS, x-request-id.
  HttpHeaders common_headers;

  // The whole answer. Ignored once the client is gone. Not after the first write().
  virtual void respond(HttpResponse response) = 0;

  // Of a stream: what is written may be sent at once, as little of it comes in a turn of the I/O
  // thread. False: more of it follows in the same turn, and one send may take all of it.
  bool writes_all_there_is = false;

  // Of a stream: what was written ends inside a message, whose rest follows. No comment may come
  // between.
  bool inside_message = false;

  // Announces a body of a length that is not known yet. `head.body` is empty.
  virtual void open_body(HttpResponse head) = 0;

  // Announces an event stream; nothing is sent yet. Only server-sent events are kept alive by
  // comments: lines of JSON have none.
  virtual void open_stream(StreamFormat format) = 0;

  virtual void write(std::string bytes) = 0;
  virtual void finish() = 0;

  // Ends an answer in pieces that cannot be completed: the connection closes after the bytes that
  // were written, which tells the client that the end is missing.
  virtual void break_off() = 0;

  // More is written than the client takes; see above.
  [[nodiscard]] virtual bool backed_up() const = 0;

  // True when the status line was sent, or is about to be: from then on errors travel in the
  // stream.
  [[nodiscard]] virtual bool committed() const = 0;

 protected:
  HttpRequest request_;
  std::atomic<bool> gone_{false};
};

}  // namespace heddle::server
