// SPDX-License-Identifier: Apache-2.0
#include "server/http_connection.h"

#include <algorithm>
#include <chrono>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>

#include "core/log.h"

// g++ 12 mistakes the frame allocator of Asio's coroutines for a mismatched one.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace heddle::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
constexpr size_t kReadBytes = 8 << 10;
constexpr size_t kMaxReadAheadBytes = 64 << 10;  // of the next request while this one is answered
// A body that nobody reads, as a refused request's, is read and dropped up to here, so that the
// connection can be kept.
constexpr uint64_t kMaxDroppedBytes = 1 << 20;
constexpr double kLingerSeconds = 2;  // for a client to read the refusal before its upload is cut
constexpr size_t kMaxLingerBytes = 256 << 20;
constexpr double kStopLingerSeconds = 0.25;  // for a request that crosses with the server's goodbye
constexpr double kProbeSeconds = 1;          // between writes to a client that may be gone

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

HttpRequest head_of(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const size_t path_end = std::min(target.find('?'), target.size());
  request.path = percent_decode(target.substr(0, path_end));
  request.query = std::string(target.substr(std::min(path_end + 1, target.size())));
  for (const auto& field : message) {
    request.headers.emplace_back(
        lower_case({field.name_string().data(), field.name_string().size()}),
        std::string(field.value().data(), field.value().size()));
  }
  return request;
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
  asio::awaitable<bool> read_body(Parser& parser, uint64_t max_bytes, BodyLease* lease);
  asio::awaitable<bool> answer();
  asio::awaitable<bool> send(std::string bytes);
  asio::awaitable<void> refuse(HttpResponse response);
  asio::awaitable<void> linger(double limit_seconds);
  void watch();
  void doubt();

  // The client sends the body only once it is invited to.
  [[nodiscard]] bool expects_continue(const Parser& parser) const {
    return http_version_ >= 11 && beast::iequals(parser.get()[http::field::expect], "100-continue");
  }

  // How long the next request may take to begin.
  [[nodiscard]] double patience_seconds() const {
    if (!stopping_) return options_.idle_timeout_seconds;
    return answered_ ? 0 : options_.first_request_seconds;
  }

  [[nodiscard]] HttpResponse too_large(uint64_t max_bytes) const {
    return handler_.on_transport_error(
        413, fmt::format("The request body may have at most {} bytes.", max_bytes));
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

  void write(std::string_view bytes) override {
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

// Waits for the first bytes of a request. False when none come: the client is gone, or too quiet.
asio::awaitable<bool> TcpConnection::await_request() {
  idle_ = true;
  start_deadline(patience_seconds());
  auto [error, count] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
  stop_deadline();
  idle_ = false;
  // What came in the last moment counts.
  if (deadline_passed_ && error) {
    count = stream_.socket().read_some(buffer_.prepare(kReadBytes), error);
  }
  if (error) co_return false;
  buffer_.commit(count);
  co_return true;
}

asio::awaitable<bool> TcpConnection::serve_one() {
  if (buffer_.size() == 0 && !co_await await_request()) co_return false;
  common_headers_.clear();
  keep_alive_ = false;
  head_only_ = false;
  doubtful_ = false;
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  parser.body_limit(static_cast<uint64_t>(options_.max_request_bytes));
  start_deadline(options_.header_timeout_seconds);
  {
    const auto [error, count] = co_await http::async_read_header(stream_, buffer_, parser, kAwait);
    static_cast<void>(count);
    stop_deadline();
    if (error == http::error::body_limit) {
      co_await refuse(too_large(static_cast<uint64_t>(options_.max_request_bytes)));
      co_return false;
    }
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      co_await refuse(handler_.on_transport_error(
          431,
          fmt::format("The request header may have at most {} bytes.", options_.max_header_bytes)));
      co_return false;
    }
    if (deadline_passed_) {
      co_await refuse(handler_.on_transport_error(
          408, fmt::format("The request header did not arrive within {} s.",
                           options_.header_timeout_seconds)));
      co_return false;
    }
    if (error && error.category() == make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      co_await refuse(handler_.on_transport_error(
          400, fmt::format("The request is not valid HTTP: {}.", error.message())));
      co_return false;
    }
    if (error) co_return false;
  }

  HttpRequest request = head_of(parser.get());
  http_version_ = parser.get().version();
  keep_alive_ = parser.keep_alive() && !stopping_;
  head_only_ = request.method == "HEAD";
  Admission admission = handler_.on_head(request, common_headers_);
  std::optional<HttpResponse>& refusal = admission.refusal;
  const bool kept = !refusal && admission.max_body_bytes > 0;
  const uint64_t max_bytes =
      std::min(kept ? static_cast<uint64_t>(admission.max_body_bytes) : kMaxDroppedBytes,
               static_cast<uint64_t>(options_.max_request_bytes));
  if (!parser.is_done()) {
    const auto announced = parser.content_length_remaining();  // none where it comes in chunks
    if (refusal && (expects_continue(parser) || !announced || *announced > max_bytes)) {
      const int status = refusal->status;
      const auto bytes = static_cast<int64_t>(refusal->body.size());
      co_await refuse(std::move(*refusal));
      handler_.on_answered(request, status, 0, bytes);
      co_return false;
    }
    if (announced && *announced > max_bytes) {
      co_await refuse(too_large(max_bytes));
      co_return false;
    }
    parser.body_limit(max_bytes);
  }
  BodyLease lease(budget_);
  if (!co_await read_body(parser, max_bytes, kept ? &lease : nullptr)) co_return false;
  request.body = std::move(parser.get().body());

  exchange_ = std::make_shared<ConnectionExchange>(std::move(request), shared(this),
                                                   options_.max_outbox_bytes);
  exchange_->common_headers = std::move(common_headers_);
  exchange_->body_lease = std::move(lease);
  if (refusal) {
    exchange_->respond(std::move(*refusal));
  } else {
    handler_.on_request(exchange_);
  }
  const bool again = co_await answer();
  answered_ = true;
  stop_watching_.emit(asio::cancellation_type::terminal);
  exchange_.reset();
  co_return again;
}

// Keeps what it reads as far as `lease` takes it; without one nothing is kept. More than
// `max_bytes` are refused.
asio::awaitable<bool> TcpConnection::read_body(Parser& parser, uint64_t max_bytes,
                                               BodyLease* lease) {
  if (parser.is_done()) co_return true;
  if (expects_continue(parser)) {
    if (!co_await send("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  start_deadline(options_.body_timeout_seconds);
  parser.eager(true);
  error_code error;
  bool taken = true;
  while (!error && taken && !parser.is_done()) {
    const auto [failure, count] = co_await http::async_read_some(stream_, buffer_, parser, kAwait);
    static_cast<void>(count);
    error = failure;
    std::string& body = parser.get().body();
    if (lease == nullptr) {
      body.clear();
    } else {
      taken = lease->grow_to(static_cast<int64_t>(body.size()));
    }
  }
  stop_deadline();
  if (!taken) {
    lease->release();
    std::string().swap(parser.get().body());
    co_await refuse(handler_.on_transport_error(
        503, "The server holds as many bytes of requests as it may. Retry later."));
    co_return false;
  }
  if (!error) co_return true;
  if (deadline_passed_) {
    co_await refuse(
        handler_.on_transport_error(408, fmt::format("The request body did not arrive within {} s.",
                                                     options_.body_timeout_seconds)));
  } else if (error == http::error::body_limit) {
    co_await refuse(too_large(max_bytes));
  } else if (error.category() == make_error_code(http::error::bad_method).category() &&
             error != http::error::partial_message && error != http::error::end_of_stream) {
    co_await refuse(handler_.on_transport_error(
        400, fmt::format("The request is not valid HTTP: {}.", error.message())));
  }
  co_return false;
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
    status = 499;
  }
  handler_.on_answered(exchange->request(), status,
                       std::chrono::duration<double>(Clock::now() - started).count(), bytes_sent);
  co_return alive&& keep_alive_ && !stopping_;
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
  if (co_await send(std::move(message))) co_await linger(kLingerSeconds);
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

}  // namespace

std::shared_ptr<Connection> Connection::create(asio::ip::tcp::socket socket,
                                               const HttpServerOptions& options,
                                               HttpHandler& handler,
                                               std::shared_ptr<BodyBudget> budget) {
  return std::make_shared<TcpConnection>(std::move(socket), options, handler, std::move(budget));
}

}  // namespace heddle::server
