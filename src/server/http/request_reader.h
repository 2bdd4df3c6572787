// SPDX-License-Identifier: Apache-2.0
// RequestReader: reads HTTP requests from a connection within the server's limits, one after
// another: await_request(), read_head(), read_body(). While a request is answered, watch() detects
// that the client disconnects and reads ahead, at most 64 KiB of the next request.
//
// Threading: confined to the I/O thread.
// Bounds:    one head, one body of at most the size that the caller allows, and the bytes read
//            ahead. Private to the files that see Asio (src/server/README.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http/body_budget.h"
#include "server/http/byte_socket.h"
#include "server/http/deadline.h"
#include "server/http/http_server.h"

// g++ 12 mistakes the frame allocator of Asio's coroutines for a mismatched one.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace heddle::server {

// Why a request was not read to its end, and the answer to it.
struct ReadFailure {
  int status = 0;  // status of the answer; 0: the connection has ended and no answer is possible
  std::string message;  // error message in the answer
};

class RequestReader {
 public:
  // `socket` and `options` outlive the reader.
  RequestReader(ByteSocket& socket, const HttpServerOptions& options);

  // Waits until the first bytes of a request arrive and drops empty lines before it. Returns false
  // if none arrive within `limit_seconds`, or if the client has disconnected.
  boost::asio::awaitable<bool> await_request(double limit_seconds);

  // Sets a new limit, counted from now, for an await_request() that is in progress, if there is
  // one.
  void limit_wait(double limit_seconds);

  // Reads a head; returns none on success. A folded header is answered 400, and so is a Host header
  // that is missing, repeated or no host.
  boost::asio::awaitable<std::optional<ReadFailure>> read_head();

  // The request that was read last, with its head only.
  [[nodiscard]] HttpRequest head() const;

  [[nodiscard]] unsigned http_version() const { return parser_->get().version(); }

  [[nodiscard]] bool keep_alive() const { return parser_->keep_alive(); }

  // True if the client sends the body only after 100 Continue.
  [[nodiscard]] bool expects_continue() const;

  // Bytes of the body that are not read yet; none if the head does not say, as with chunks.
  [[nodiscard]] std::optional<uint64_t> announced_bytes() const;

  [[nodiscard]] bool body_is_read() const { return parser_->is_done(); }

  // Reads the body and keeps as much of it as `lease` allows; without a lease the body is dropped.
  // Returns none on success. A folded line in the trailer of a chunked body is answered 400.
  boost::asio::awaitable<std::optional<ReadFailure>> read_body(uint64_t max_bytes,
                                                               BodyLease* lease);

  [[nodiscard]] std::string take_body() { return std::move(parser_->get().body()); }

  // Watches until stop_watching(): calls `on_gone` once when the client has disconnected or has
  // closed its sending side. Once more than 64 KiB are read ahead, reading stops, and only a reset
  // shows that the client is gone. `owner` is kept alive meanwhile.
  void watch(std::shared_ptr<void> owner, std::function<void()> on_gone);
  void stop_watching();

  // Reads and drops the client's bytes until it closes the connection, or for `limit_seconds`.
  boost::asio::awaitable<void> drop_input(double limit_seconds);

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void start_deadline(double limit_seconds);
  boost::asio::awaitable<boost::system::error_code> receive_head();
  boost::asio::awaitable<boost::system::error_code> receive_body_part();
  void note_folding(std::string_view parsed);
  void drop_empty_lines();
  [[nodiscard]] bool request_has_begun() const;
  [[nodiscard]] std::string_view unparsed() const;
  [[nodiscard]] std::optional<ReadFailure> check_head() const;
  [[nodiscard]] std::string_view host_of_head() const;
  void watch_on(std::shared_ptr<void> owner);
  [[nodiscard]] ReadFailure failure_of(const boost::system::error_code& error) const;

  ByteSocket& socket_;
  const HttpServerOptions& options_;
  boost::beast::flat_buffer buffer_;  // bytes that are received and not parsed
  std::optional<Parser> parser_;
  Deadline deadline_;
  bool deadline_passed_ = false;
  bool waiting_ = false;  // await_request() is in progress
  // True: the next byte to be parsed begins a line of the head or trailer.
  bool at_line_begin_ = false;
  // True: a line of the head or trailer continues the one before it (a folded line).
  bool is_folded_ = false;
  boost::asio::cancellation_signal stop_watching_;
  std::function<void()> on_gone_;  // null: watch() is not active
};

}  // namespace heddle::server
