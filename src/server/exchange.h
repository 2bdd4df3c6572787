// SPDX-License-Identifier: Apache-2.0
// Exchange: one HTTP request and the answer it is waiting for.
//
// An answer is either one respond(), or open_stream() followed by any number of write() and one
// finish(). The status line of a stream is held back until the first write, so that an error met
// before that can still be an ordinary response.
//
// Threading: confined to the I/O thread, but for gone() and, until release_body(), request().
// Bounds:    a stream whose client reads too slowly is cut off when its outbox passes the limit.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "server/body_budget.h"
#include "server/http_message.h"

namespace heddle::server {

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

  // The id that its body names takes the place of the header's, for the client and in the log.
  void rename(const std::string& id) {
    request_.id = id;
    for (auto& [name, value] : common_headers) {
      if (name == "x-request-id") value = id;
    }
  }

  // True once the client went away; what it asked for need not be computed any more.
  [[nodiscard]] bool gone() const { return gone_.load(std::memory_order_relaxed); }

  // Called at most once, on the I/O thread, if the client goes away before its answer is complete.
  std::function<void()> on_gone;

  // The body's part of what may be held at once.
  BodyLease body_lease;

  // Sent with every answer of this exchange: CORS, x-request-id.
  HttpHeaders common_headers;

  // The whole answer. Ignored once the client is gone. Not after the first write().
  virtual void respond(HttpResponse response) = 0;

  // Announces an event stream; nothing is sent yet.
  virtual void open_stream() = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;

  // True when the status line was sent, or is about to be: from then on errors travel in the
  // stream.
  [[nodiscard]] virtual bool committed() const = 0;

 protected:
  HttpRequest request_;
  std::atomic<bool> gone_{false};
};

}  // namespace heddle::server
