// SPDX-License-Identifier: Apache-2.0
// Connection: one connection of a client, as a coroutine: it reads a request (RequestReader),
// passes it to the handler, writes the answer (ResponseWriter), and repeats.
//
// One rule for clients that disconnect: a client that closes its connection, or only its sending
// side, before its answer is complete counts as gone, and its request is cancelled. An answer that
// is already complete is still sent.
//
// Threading: confined to the I/O thread. Private to http_server.cpp. The files that see Asio and
//            Beast are listed in src/server/README.md.
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
  // `options` and `handler` outlive the connection. `client` becomes HttpRequest::client.
  Connection(ByteSocket socket, std::string client, const HttpServerOptions& options,
             HttpHandler& handler, std::shared_ptr<BodyBudget> budget);

  // Serves requests until the connection ends.
  boost::asio::awaitable<void> run();

  // Sends `response` without reading a request, and closes the connection.
  boost::asio::awaitable<void> turn_away(HttpResponse response);

  // Makes the next answer the last. A connection that waits for a request closes, unless one has
  // already arrived; a new connection waits a moment for its first request.
  void stop_after_answer();

  // Closes the socket at once, whatever the connection is doing.
  void close();

 private:
  boost::asio::awaitable<bool> serve_one();  // returns false when the connection is over
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

  // How many seconds the connection waits for the next request to begin.
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
  boost::asio::steady_timer change_timer_;        // used as a condition variable with a deadline
  std::shared_ptr<ConnectionExchange> exchange_;  // set while a request is being answered
  IoClock::time_point last_write_;                // time of the last write of the answer's body
  bool waits_ = false;          // answer() waits for more of an answer that it has begun to send
  HttpHeaders common_headers_;  // headers for the answer to the request being read
  std::optional<HttpRequest> request_;  // the request whose body is being read
  IoClock::time_point reading_since_ = IoClock::now();
  bool keep_alive_ = true;
  bool answered_ = false;  // at least one request was answered on this connection
  bool stopping_ = false;
};

}  // namespace heddle::server
