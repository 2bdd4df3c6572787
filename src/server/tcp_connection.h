// SPDX-License-Identifier: Apache-2.0
// TcpConnection: a Connection over a TCP socket, and ConnectionExchange, what its handler answers
// through. http_connection_request.cpp reads a request, http_connection_answer.cpp writes its
// answer, http_connection.cpp has what both need.
//
// Threading: confined to the I/O thread.
// Private to http_connection*.cpp.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http_connection.h"

// g++ 12 mistakes the frame allocator of Asio's coroutines for a mismatched one.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace heddle::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

inline constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
inline constexpr size_t kReadBytes = 8 << 10;
// Of the next request while this one is answered.
inline constexpr size_t kMaxReadAheadBytes = 64 << 10;

inline Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class ConnectionExchange;

class TcpConnection final : public Connection {
 public:
  TcpConnection(asio::ip::tcp::socket socket, const HttpServerOptions& options,
                HttpHandler& handler, std::shared_ptr<BodyBudget> budget)
      : options_(options),
        handler_(handler),
        budget_(std::move(budget)),
        stream_(std::move(socket)),
        // A head or the trailer of a chunked body fits in whole, and what is read past its end.
        buffer_(static_cast<size_t>(options.max_header_bytes) + kMaxReadAheadBytes + kReadBytes),
        wake_timer_(stream_.get_executor()),
        deadline_timer_(stream_.get_executor()) {}

  asio::awaitable<void> run() override;
  asio::awaitable<void> turn_away(HttpResponse response) override;

  void stop_after_answer() override {
    stopping_ = true;
    if (idle_) start_deadline(patience_seconds());
  }

  void close() override {
    error_code ignored;
    stream_.socket().close(ignored);
    stream_.close();
    client_gone();
  }

  void wake() { wake_timer_.cancel(); }

  void client_gone();

 private:
  friend class ConnectionExchange;

  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<bool> serve_one();  // false: the connection is over
  asio::awaitable<bool> await_request();
  asio::awaitable<bool> read_head(Parser& parser);
  asio::awaitable<bool> read_body(Parser& parser, uint64_t max_bytes, BodyLease* lease);
  asio::awaitable<bool> answer();
  asio::awaitable<bool> send(std::string bytes);
  asio::awaitable<void> refuse(HttpResponse response);
  asio::awaitable<void> refuse(int status, std::string_view message);
  void note_unread(int status, int64_t bytes_sent);
  asio::awaitable<void> linger(double limit_seconds);
  void watch();
  void doubt();

  // The client sends the body only once it is invited to.
  [[nodiscard]] bool expects_continue(const Parser& parser) const;

  // How long the next request may take to begin.
  [[nodiscard]] double patience_seconds() const {
    if (!stopping_) return options_.idle_timeout_seconds;
    return answered_ ? 0 : options_.first_request_seconds;
  }

  void start_deadline(double limit_seconds);
  void stop_deadline();

  [[nodiscard]] std::string format_head(const HttpResponse& response, bool chunked) const;

  static std::shared_ptr<TcpConnection> shared(TcpConnection* self) {
    return std::static_pointer_cast<TcpConnection>(self->shared_from_this());
  }

  const HttpServerOptions& options_;
  HttpHandler& handler_;
  const std::shared_ptr<BodyBudget> budget_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer wake_timer_;  // a condition variable with a deadline
  asio::steady_timer deadline_timer_;
  int deadline_number_ = 0;  // a timer's late news are recognised by it
  bool deadline_passed_ = false;
  asio::cancellation_signal stop_watching_;
  std::shared_ptr<ConnectionExchange> exchange_;  // set while an answer is being made
  HttpHeaders common_headers_;
  std::optional<HttpRequest> request_;  // whose body is being read
  Clock::time_point reading_since_ = Clock::now();
  unsigned http_version_ = 11;
  bool keep_alive_ = true;
  bool head_only_ = false;  // HEAD: the answer's body is not sent
  bool idle_ = true;
  bool answered_ = false;  // a request, at least
  bool stopping_ = false;
  bool doubtful_ = false;  // reading does not tell any more whether the client is there
};

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(HttpRequest request, std::weak_ptr<TcpConnection> connection,
                     int64_t max_outbox_bytes)
      : Exchange(std::move(request)),
        connection_(std::move(connection)),
        max_outbox_bytes_(max_outbox_bytes) {}

  void respond(HttpResponse response) override {
    if (gone() || response_ || committed()) return;
    response_ = std::move(response);
    wake();
  }

  void open_stream() override {
    streaming_ = true;
    opened_at_ = Clock::now();
    wake();
  }

  void write(std::string_view bytes) override;

  void finish() override {
    finished_ = true;
    wake();
  }

  [[nodiscard]] bool committed() const override { return wanted_; }

 private:
  friend class TcpConnection;

  void wake() {
    if (const auto connection = connection_.lock()) connection->wake();
  }

  void mark_gone() {
    if (gone_.exchange(true)) return;
    outbox_.clear();
    if (on_gone) std::exchange(on_gone, nullptr)();
  }

  std::weak_ptr<TcpConnection> connection_;
  const int64_t max_outbox_bytes_;
  std::optional<HttpResponse> response_;
  std::string outbox_;
  size_t in_flight_bytes_ = 0;
  Clock::time_point opened_at_;
  bool streaming_ = false;
  bool wanted_ = false;  // something was written to the stream
  bool finished_ = false;
};

}  // namespace heddle::server
