// SPDX-License-Identifier: Apache-2.0
// What reading and answering have in common: the connection's life, deadlines, sending, refusing.
#include "server/http_connection.h"

#include <string>
#include <utility>

#include <boost/asio/write.hpp>

#include "server/tcp_connection.h"

namespace heddle::server {
namespace {

constexpr double kLingerSeconds = 2;  // for a client to read the refusal before its upload is cut
constexpr size_t kMaxLingerBytes = 256 << 20;
constexpr double kStopLingerSeconds = 0.25;  // for a request that crosses with the server's goodbye

}  // namespace

void TcpConnection::client_gone() {
  if (exchange_) exchange_->mark_gone();
  wake();
}

asio::awaitable<void> TcpConnection::run() {
  const auto self = shared_from_this();
  error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  while (co_await serve_one()) {
  }
  if (stopping_) co_await linger(kStopLingerSeconds);
  close();
}

asio::awaitable<void> TcpConnection::turn_away(HttpResponse response) {
  const auto self = shared_from_this();
  error_code ignored;
  stream_.socket().non_blocking(true, ignored);
  co_await refuse(std::move(response));
  close();
}

asio::awaitable<bool> TcpConnection::send(std::string bytes) {
  stream_.expires_after(seconds(options_.write_timeout_seconds));
  const auto [error, count] = co_await asio::async_write(stream_, asio::buffer(bytes), kAwait);
  static_cast<void>(count);
  stream_.expires_never();
  co_return !error;
}

// Answers a request that will not be read to its end; the connection ends with it.
asio::awaitable<void> TcpConnection::refuse(HttpResponse response) {
  keep_alive_ = false;
  std::string message = format_head(response, false);
  if (!head_only_) message += response.body;
  const auto bytes = static_cast<int64_t>(message.size());
  const bool sent = co_await send(std::move(message));
  note_unread(sent ? response.status : kClientLeft, sent ? bytes : 0);
  if (sent) co_await linger(kLingerSeconds);
}

asio::awaitable<void> TcpConnection::refuse(int status, std::string_view message) {
  return refuse(handler_.on_transport_error(status, message));
}

void TcpConnection::note_unread(int status, int64_t bytes_sent) {
  handler_.on_answered(request_ ? &*request_ : nullptr, {.status = status,
                                                         .seconds = seconds_since(reading_since_),
                                                         .bytes = bytes_sent,
                                                         .read_whole = false});
}

// Reads what the client still sends for a moment: closing at once would reset the connection and
// could destroy the answer before the client has read it.
asio::awaitable<void> TcpConnection::linger(double limit_seconds) {
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(seconds(limit_seconds));
  std::string dropped(kMaxReadAheadBytes, '\0');
  for (size_t total = 0; !error && total < kMaxLingerBytes;) {
    const auto [failure, count] = co_await stream_.async_read_some(asio::buffer(dropped), kAwait);
    error = failure;
    total += count;
  }
}

// Cancels what the stream reads when time is up. Beast's own timeout would close the socket, and
// the client would never learn why.
void TcpConnection::start_deadline(double limit_seconds) {
  deadline_passed_ = false;
  deadline_timer_.expires_after(seconds(limit_seconds));
  deadline_timer_.async_wait(
      [self = shared(this), number = ++deadline_number_](const error_code& error) {
        if (error || number != self->deadline_number_) return;
        self->deadline_passed_ = true;
        self->stream_.cancel();
      });
}

void TcpConnection::stop_deadline() {
  ++deadline_number_;
  deadline_timer_.cancel();
}

std::shared_ptr<Connection> Connection::create(asio::ip::tcp::socket socket,
                                               const HttpServerOptions& options,
                                               HttpHandler& handler,
                                               std::shared_ptr<BodyBudget> budget) {
  return std::make_shared<TcpConnection>(std::move(socket), options, handler, std::move(budget));
}

}  // namespace heddle::server
