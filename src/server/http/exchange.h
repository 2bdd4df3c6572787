// SPDX-License-Identifier: Apache-2.0
// Exchange: one HTTP request and its answer. An answer is sent in one of three ways:
//
//   respond(): the whole answer at once;
//   open_body(), write() ..., finish(): a body that is produced while it is sent;
//   open_stream(), write() ..., finish(): a stream of events. The status line is held back until
//   the first write, so that an earlier error can still be an ordinary response.
//
// Back-pressure: bytes that the client has not received yet are buffered. Once they exceed the
// server's limit, backed_up() is true, and a caller with much to write should wait for on_drained.
// A write of any size is accepted. A client that receives no bytes for the server's write timeout
// is disconnected; gone() is then true.
//
// Threading: confined to the I/O thread, except gone() and, until release_body(), request().
// Bounds:    the buffer is at most the limit and one write, as long as callers wait when
//            backed_up().
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
  kEvents,  // server-sent events (text/event-stream)
  kLines,   // one JSON value per line (application/x-ndjson)
};

class Exchange {
 public:
  explicit Exchange(HttpRequest request) : request_(std::move(request)) {}

  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] const HttpRequest& request() const { return request_; }

  // Frees the request's body once it is parsed, because an answer can take minutes.
  void release_body() {
    std::string().swap(request_.body);
    body_lease.release();
  }

  // Clears the request's `counted` flag and returns it: whoever calls this then counts the request
  // for its API key instead.
  [[nodiscard]] bool hand_over_count() { return std::exchange(request_.counted, false); }

  // Stores the speed of this request for its line in the log.
  void note_speed(std::string speed) { request_.speed = std::move(speed); }

  // Replaces the id from the header by the one in the body, for the client and in the log.
  void rename(const std::string& id) {
    request_.id = id;
    for (auto& [name, value] : common_headers) {
      if (name == "x-request-id") value = id;
    }
  }

  // True once the client has disconnected: its answer need not be computed any more.
  [[nodiscard]] bool gone() const { return gone_.load(std::memory_order_relaxed); }

  // Called at most once, on the I/O thread, if the client disconnects before its answer is
  // complete.
  std::function<void()> on_gone;

  // Called on the I/O thread when backed_up() has become false again, so that the caller can write
  // on. Called once more, after on_gone, when the client disconnects.
  std::function<void()> on_drained;

  // The part of the server's budget for bodies that this request's body uses.
  BodyLease body_lease;

  // Headers sent with every answer of this exchange: CORS, x-request-id.
  HttpHeaders common_headers;

  // Sends the whole answer. Ignored once the client is gone. Must not follow a write().
  virtual void respond(HttpResponse response) = 0;

  // For streams. True: each write may be sent at once, because few writes come in one turn of the
  // I/O thread. False: more writes follow in the same turn, and one send may combine them.
  bool writes_all_there_is = false;

  // For streams. True: the bytes written so far end inside a message, whose rest follows; no
  // comment may be inserted between.
  bool inside_message = false;

  // Starts an answer whose length is not known yet. `head.body` is empty.
  virtual void open_body(HttpResponse head) = 0;

  // Starts an event stream; nothing is sent yet. Only server-sent events are kept alive by
  // comments, because JSON lines have none.
  virtual void open_stream(StreamFormat format) = 0;

  virtual void write(std::string bytes) = 0;
  virtual void finish() = 0;

  // Ends an answer in pieces that cannot be completed. The connection closes after the bytes
  // written so far, so that the client sees that the end is missing.
  virtual void break_off() = 0;

  // True when more bytes are buffered than the limit allows; see "Back-pressure" above.
  [[nodiscard]] virtual bool backed_up() const = 0;

  // True when the status line was sent, or is about to be: errors must then be sent within the
  // stream.
  [[nodiscard]] virtual bool committed() const = 0;

 protected:
  HttpRequest request_;
  std::atomic<bool> gone_{false};
};

}  // namespace heddle::server
