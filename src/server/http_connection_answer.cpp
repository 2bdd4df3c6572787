// SPDX-License-Identifier: Apache-2.0
// How an answer is written as it comes, while the socket is watched for the client's leaving.
#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <fmt/format.h>

#include "core/log.h"
#include "server/tcp_connection.h"

namespace heddle::server {
namespace {

constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
constexpr double kProbeSeconds = 1;  // between writes to a client that may be gone

}  // namespace

void ConnectionExchange::write(std::string_view bytes) {
  if (gone() || finished_ || response_ || bytes.empty()) return;
  wanted_ = true;
  outbox_.append(bytes);
  if (static_cast<int64_t>(outbox_.size() + in_flight_bytes_) > max_outbox_bytes_) {
    log_warning(
        fmt::format("{} reads its stream too slowly: {} bytes are unsent, the limit is {}; "
                    "the connection is closed",
                    request().id, outbox_.size() + in_flight_bytes_, max_outbox_bytes_));
    if (const auto connection = connection_.lock()) connection->close();
    return;
  }
  wake();
}

// Writes the exchange's answer as it comes. False when the connection cannot be used again.
asio::awaitable<bool> TcpConnection::answer() {
  const auto started = Clock::now();
  const std::shared_ptr<ConnectionExchange> exchange = exchange_;
  int status = 200;
  int64_t bytes_sent = 0;
  bool head_sent = false;
  bool alive = true;
  auto last_write = started;
  auto next_probe = started;
  watch();
  while (true) {
    if (exchange->gone()) {
      alive = false;
      break;
    }
    if (exchange->response_) {
      const HttpResponse& response = *exchange->response_;
      status = response.status;
      std::string message = format_head(response, false);
      if (!head_only_) message += response.body;
      bytes_sent += static_cast<int64_t>(message.size());
      alive = co_await send(std::move(message));
      break;
    }
    const bool chunked = http_version_ >= 11;
    if (!exchange->outbox_.empty() || (exchange->finished_ && exchange->wanted_)) {
      std::string message;
      if (!head_sent) {
        if (!chunked) keep_alive_ = false;  // the end of the connection is the end of the stream
        message =
            format_head({.status = 200,
                         .content_type = std::string(kEventStream),
                         .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                         .body = {}},
                        chunked);
        head_sent = true;
      }
      const bool last = exchange->finished_;
      if (!exchange->outbox_.empty()) {
        if (chunked) message += fmt::format("{:x}\r\n", exchange->outbox_.size());
        message += exchange->outbox_;
        if (chunked) message += "\r\n";
        exchange->outbox_.clear();
      }
      if (last && chunked) message += "0\r\n\r\n";
      exchange->in_flight_bytes_ = message.size();
      bytes_sent += static_cast<int64_t>(message.size());
      alive = co_await send(std::move(message));
      exchange->in_flight_bytes_ = 0;
      last_write = Clock::now();
      if (!alive || last) break;
      continue;
    }

    auto deadline = Clock::time_point::max();
    if (exchange->streaming_ && options_.stream_keepalive_seconds > 0) {
      deadline = head_sent ? last_write + seconds(options_.stream_keepalive_seconds)
                           : exchange->opened_at_ + seconds(options_.stream_commit_seconds);
      if (Clock::now() >= deadline) {
        exchange->write(": ping\n\n");
        continue;
      }
    }
    if (doubtful_) {
      // Where nobody is left, what is written comes back as a reset. An interim response, or a
      // comment of the stream, means nothing to who is.
      if (Clock::now() >= next_probe) {
        next_probe = Clock::now() + seconds(kProbeSeconds);
        if (head_sent) {
          exchange->write(": ping\n\n");
        } else if (!(alive = co_await send("HTTP/1.1 102 Processing\r\n\r\n"))) {
          break;
        }
        continue;
      }
      deadline = std::min(deadline, next_probe);
    }
    wake_timer_.expires_at(deadline);
    const auto [ignored] = co_await wake_timer_.async_wait(kAwait);
    static_cast<void>(ignored);
  }
  if (!alive) {
    exchange->mark_gone();
    status = kClientLeft;
  }
  handler_.on_answered(&exchange->request(),
                       {.status = status, .seconds = seconds_since(started), .bytes = bytes_sent});
  co_return alive&& keep_alive_ && !stopping_;
}

// Waits for the socket to become readable: the end of the connection, or bytes of the next request.
void TcpConnection::watch() {
  if (buffer_.size() >= kMaxReadAheadBytes) return doubt();
  stream_.socket().async_wait(
      asio::ip::tcp::socket::wait_read,
      asio::bind_cancellation_slot(stop_watching_.slot(), [self = shared(this),
                                                           watched =
                                                               exchange_](const error_code& error) {
        if (error || self->exchange_ != watched) return;
        error_code failure;
        const size_t count =
            self->stream_.socket().read_some(self->buffer_.prepare(kReadBytes), failure);
        if (failure == asio::error::eof) return self->doubt();
        if (failure && failure != asio::error::would_block && failure != asio::error::try_again) {
          self->client_gone();
          return;
        }
        self->buffer_.commit(failure ? 0 : count);
        self->watch();
      }));
}

// The client will send nothing more, or has sent more than is read ahead: it may be gone, or wait
// for its answer. answer() finds out by writing, and the socket's error is heard here. HTTP/1.0
// knows nothing that could be written.
void TcpConnection::doubt() {
  if (http_version_ < 11) return client_gone();
  doubtful_ = true;
  wake();
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_error,
                              asio::bind_cancellation_slot(
                                  stop_watching_.slot(), [self = shared(this), watched = exchange_](
                                                             const error_code& error) {
                                    if (!error && self->exchange_ == watched) self->client_gone();
                                  }));
}

std::string TcpConnection::format_head(const HttpResponse& response, bool chunked) const {
  ResponseFraming framing = ResponseFraming::kLength;
  if (chunked) framing = ResponseFraming::kChunked;
  if (!chunked && response.content_type == kEventStream) framing = ResponseFraming::kUntilClose;
  std::string_view connection;
  if (!keep_alive_ || stopping_) {
    connection = "close";
  } else if (http_version_ < 11) {
    connection = "keep-alive";
  }
  return format_response_head(response, exchange_ ? exchange_->common_headers : common_headers_,
                              framing, connection);
}

}  // namespace heddle::server
