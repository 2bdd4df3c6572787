// SPDX-License-Identifier: Apache-2.0
// Connection: one connection of a client as a coroutine: read a request (RequestReader), hand it
// over, write the answer (ResponseWriter), again.
//
// One rule for clients that leave: a client that closes its connection, or only its sending side,
// before its answer is complete is gone, and its request is cancelled. An answer that is complete
// is sent.
//
// Threading: confined to the I/O thread.
// Private to http_server.cpp. The files that see Asio and Beast are listed in src/server/README.md.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http/body_budget.h"
#include "server/http/byte_socket.h"
#include "server/http/connection_exchange.h"
#include "server/http/http_server.h"
#include "server/http/request_reader.h"
#include "server/http/response_writer.h"

namespace heddle::server {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `options` and `handler` outlive the connection. `client` is HttpRequest::client.
  Connection(ByteSocket socket, std::string client, const HttpServerOptions& options,
             HttpHandler& handler, std::shared_ptr<BodyBudget> budget);

  // Serves requests until the connection ends.
  boost::asio::awaitable<void> run();

  // Answers whatever is asked with `response` and ends.
  boost::asio::awaitable<void> turn_away(HttpResponse response);

  // The next answer is the last. A connection between requests closes, unless one has arrived; a
  // new one waits a moment for its first.
  void stop_after_answer();

  // Closes the socket whatever is going on.
  void close();

 private:
  boost::asio::awaitable<bool> serve_one();  // false: the connection is over
  boost::asio::awaitable<bool> answer();
  boost::asio::awaitable<bool> invite_and_read_body(uint64_t max_bytes, BodyLease* lease);
  boost::asio::awaitable<void> refuse(HttpResponse response);
  boost::asio::awaitable<void> refuse(int status, std::string_view message);
  boost::asio::awaitable<void> refuse(const ReadFailure& failure);
  void note_unread(int status, int64_t bytes_sent);
  boost::asio::awaitable<void> linger(double limit_seconds);
  boost::asio::awaitable<void> wait_for_change(IoClock::time_point deadline);
  void on_change();
  [[nodiscard]] bool send_now();
  void client_left();

  // How long the next request may take to begin.
  [[nodiscard]] double patience_seconds() const {
    if (!stopping_) return options_.idle_timeout_seconds;
    return answered_ ? 0 : options_.first_request_seconds;
  }

  const std::string client_;
  const HttpServerOptions& options_;
  HttpHandler& handler_;
  const std::shared_ptr<BodyBudget> budget_;
  ByteSocket socket_;
  RequestReader reader_;
  ResponseWriter writer_;
  boost::asio::steady_timer change_timer_;        // a condition variable with a deadline
  std::shared_ptr<ConnectionExchange> exchange_;  // set while an answer is being made
  IoClock::time_point last_write_;                // of its body
  bool waits_ = false;  // answer() waits for a change of an answer that it has begun to send
  HttpHeaders common_headers_;          // of the answer to the request being read
  std::optional<HttpRequest> request_;  // whose body is being read
  IoClock::time_point reading_since_ = IoClock::now();
  bool keep_alive_ = true;
  bool answered_ = false;  // a request, at least
  bool stopping_ = false;
};

}  // namespace heddle::server
