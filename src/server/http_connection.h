// SPDX-License-Identifier: Apache-2.0
// Connection: one TCP connection as a coroutine: read a request, hand it over, write the answer,
// again. While an answer is being made the socket is watched, so that a client's leaving ends its
// work at once.
//
// Threading: confined to the I/O thread.
// Private to http_server.cpp and http_connection*.cpp, the only files that see Asio and Beast.
#pragma once

#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "server/http_server.h"

namespace heddle::server {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `options` and `handler` outlive the connection.
  static std::shared_ptr<Connection> create(boost::asio::ip::tcp::socket socket,
                                            const HttpServerOptions& options, HttpHandler& handler,
                                            std::shared_ptr<BodyBudget> budget);

  virtual ~Connection() = default;

  // Serves requests until the connection ends.
  virtual boost::asio::awaitable<void> run() = 0;

  // Answers whatever is asked with `response` and ends.
  virtual boost::asio::awaitable<void> turn_away(HttpResponse response) = 0;

  // The next answer is the last. A connection between requests closes, unless one has arrived; a
  // new one waits a moment for its first.
  virtual void stop_after_answer() = 0;

  // Closes the socket whatever is going on.
  virtual void close() = 0;
};

}  // namespace heddle::server
