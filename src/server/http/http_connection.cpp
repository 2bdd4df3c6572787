// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_connection.h"

#include <algorithm>
#include <string>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

namespace heddle::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The body of a refused request, or of a route without a body, is read and dropped up to this size,
// so that the connection can be kept open.
constexpr uint64_t kMaxDroppedBytes = 1 << 20;

// The Transfer-Encoding of a body whose end cannot be found: any coding except plain chunks, and
// any coding in HTTP/1.0, which has none.
std::optional<std::string> unknown_coding(const HttpRequest& request, unsigned http_version) {
  for (const auto& [name, value] : request.headers) {
    if (name != "transfer-encoding") continue;
    if (http_version < 11 || lower_case(value) != "chunked") return value;
  }
  return std::nullopt;
}

}  // namespace

Connection::Connection(ByteSocket socket, std::string client, const HttpServerOptions& options,
                       HttpHandler& handler, std::shared_ptr<BodyBudget> budget)
    : client_(std::move(client)),
      options_(options),
      handler_(handler),
      budget_(std::move(budget)),
      socket_(std::move(socket)),
      reader_(socket_, options),
      writer_(socket_, options.write_timeout_seconds),
      change_timer_(socket_.get_executor()) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);  // only TCP sockets have this option
  socket_.non_blocking(true, ignored);
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  while (co_await serve_one()) {
  }
  if (stopping_) co_await linger(options_.stop_linger_seconds);
  close();
}

asio::awaitable<void> Connection::turn_away(HttpResponse response) {
  const auto self = shared_from_this();
  co_await refuse(std::move(response));
  close();
}

void Connection::stop_after_answer() {
  stopping_ = true;
  reader_.limit_wait(patience_seconds());
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
  client_left();
}

void Connection::client_left() {
  if (exchange_) exchange_->mark_gone();
  change_timer_.cancel();
}

// Answers a request that will not be read to its end; the connection ends with it.
asio::awaitable<void> Connection::refuse(HttpResponse response) {
  const int status = response.status;
  const bool sent =
      co_await writer_.send(std::move(response), common_headers_, /*keep_alive=*/false);
  note_unread(sent ? status : kClientLeft, sent ? writer_.bytes_sent() : 0);
  if (sent) co_await linger(options_.linger_seconds);
}

asio::awaitable<void> Connection::refuse(int status, std::string_view message) {
  return refuse(handler_.on_transport_error(request_ ? &*request_ : nullptr, status, message));
}

asio::awaitable<void> Connection::refuse(const ReadFailure& failure) {
  return refuse(failure.status, failure.message);
}

void Connection::note_unread(int status, int64_t bytes_sent) {
  handler_.on_answered(request_ ? &*request_ : nullptr, {.status = status,
                                                         .seconds = seconds_since(reading_since_),
                                                         .bytes = bytes_sent,
                                                         .read_whole = false});
}

// Reads and drops the client's bytes for a moment. Closing at once would reset the connection, and
// the client could lose the answer before reading it.
asio::awaitable<void> Connection::linger(double limit_seconds) {
  error_code error;
  socket_.shutdown(asio::socket_base::shutdown_send, error);
  if (!error) co_await reader_.drop_input(limit_seconds);
}

asio::awaitable<bool> Connection::serve_one() {
  if (!co_await reader_.await_request(patience_seconds())) co_return false;
  common_headers_.clear();
  request_.reset();
  writer_.begin(/*http_version=*/11, /*head_only=*/false);
  reading_since_ = IoClock::now();
  if (const auto failure = co_await reader_.read_head()) {
    if (failure->status != 0) co_await refuse(*failure);
    co_return false;
  }
  request_ = reader_.head();
  request_->client = client_;
  reading_since_ = IoClock::now();
  keep_alive_ = reader_.keep_alive();
  writer_.begin(reader_.http_version(), request_->method == "HEAD");
  Admission admission = handler_.on_head(*request_, common_headers_);
  if (const auto coding = unknown_coding(*request_, reader_.http_version())) {
    // The bytes after the head could be the body or the next request.
    co_await refuse(501,
                    fmt::format("The Transfer-Encoding is \"{}\"; only chunked is read, and only "
                                "of HTTP/1.1.",
                                *coding));
    co_return false;
  }
  std::optional<HttpResponse>& refusal = admission.refusal;
  const bool kept = !refusal && admission.max_body_bytes > 0;
  const uint64_t max_bytes =
      std::min(kept ? static_cast<uint64_t>(admission.max_body_bytes) : kMaxDroppedBytes,
               static_cast<uint64_t>(options_.max_request_bytes));
  BodyLease lease(budget_);
  if (!reader_.body_is_read()) {
    const auto announced = reader_.announced_bytes();
    if (refusal && (reader_.expects_continue() || !announced || *announced > max_bytes)) {
      co_await refuse(std::move(*refusal));
      co_return false;
    }
    if (!co_await invite_and_read_body(max_bytes, kept ? &lease : nullptr)) co_return false;
  }
  request_->body = reader_.take_body();

  exchange_ = std::make_shared<ConnectionExchange>(
      *std::exchange(request_, std::nullopt), options_.max_outbox_bytes, [weak = weak_from_this()] {
        if (const auto connection = weak.lock()) connection->on_change();
      });
  exchange_->common_headers = std::move(common_headers_);
  exchange_->body_lease = std::move(lease);
  if (refusal) {
    exchange_->respond(std::move(*refusal));
  } else {
    handler_.on_request(exchange_);
  }
  const bool sent = co_await answer();
  answered_ = true;
  exchange_.reset();
  if (!sent || stopping_) co_return false;
  if (!keep_alive_) co_await linger(options_.linger_seconds);
  co_return keep_alive_;
}

// Invites the client to send the body if it waits for that, and reads it. Returns false if the body
// did not arrive completely; then the request is answered here.
asio::awaitable<bool> Connection::invite_and_read_body(uint64_t max_bytes, BodyLease* lease) {
  std::optional<ReadFailure> failure;
  const auto announced = reader_.announced_bytes();
  if (announced && *announced > max_bytes) {
    failure =
        ReadFailure{413, fmt::format("The request body may have at most {} bytes.", max_bytes)};
  } else if (reader_.expects_continue() && !co_await writer_.send_continue()) {
    failure = ReadFailure{};
  } else {
    failure = co_await reader_.read_body(max_bytes, lease);
  }
  if (!failure) co_return true;
  if (failure->status != 0) {
    co_await refuse(*failure);
  } else if (socket_.is_open()) {  // the client disconnected; the server did not close the socket
                                   // itself
    note_unread(kClientLeft, 0);
  }
  co_return false;
}

// Sends the exchange's answer as it is made. Returns false if the client did not receive all of it.
asio::awaitable<bool> Connection::answer() {
  const auto started = IoClock::now();
  const std::shared_ptr<ConnectionExchange> exchange = exchange_;
  int status = 200;
  bool opened = false;
  bool alive = true;
  last_write_ = started;
  reader_.watch(shared_from_this(), [this] { close(); });
  while (true) {
    if (exchange->gone()) {
      alive = false;
      break;
    }
    if (auto response = exchange->take_response()) {
      reader_.stop_watching();
      status = response->status;
      keep_alive_ = keep_alive_ && !stopping_;
      alive = co_await writer_.send(std::move(*response), exchange->common_headers, keep_alive_);
      break;
    }
    if (exchange->has_piece() || writer_.left_over()) {
      if (!std::exchange(opened, true)) {
        status = exchange->head().status;
        keep_alive_ = keep_alive_ && !stopping_ && !writer_.ends_by_closing();
        writer_.open(exchange->head(), exchange->common_headers, keep_alive_);
      }
      auto [bytes, last] = exchange->take_piece();
      if (last) reader_.stop_watching();
      alive = co_await writer_.send_piece(std::move(bytes), last);
      last_write_ = IoClock::now();
      if (!alive || last) break;
      exchange->piece_sent();
      continue;
    }
    if (exchange->broken_off()) {
      alive = false;
      break;
    }
    auto deadline = IoClock::time_point::max();
    if (exchange->is_event_stream() && !exchange->inside_message &&
        options_.stream_keepalive_seconds > 0) {
      deadline = last_write_ + seconds(opened ? options_.stream_keepalive_seconds
                                              : options_.stream_commit_seconds);
      if (IoClock::now() >= deadline) {
        exchange->write(": ping\n\n");
        continue;
      }
    }
    waits_ = opened;
    co_await wait_for_change(deadline);
    waits_ = false;
  }
  reader_.stop_watching();
  if (exchange->broken_off()) {
    status = 500;
  } else if (!alive) {
    exchange->mark_gone();
    status = kClientLeft;
  }
  handler_.on_answered(
      &exchange->request(),
      {.status = status, .seconds = seconds_since(started), .bytes = writer_.bytes_sent()});
  co_return alive;
}

// Called when there is something to send, or the answer has ended.
void Connection::on_change() {
  if (!waits_ || !send_now()) change_timer_.cancel();
}

// Sends a piece of a stream directly from the write that made it. With thousands of streams this
// saves each event the wake-up of a coroutine that was idle for so long that no cache contains its
// data.
bool Connection::send_now() {
  if (writer_.left_over() || !exchange_->has_all_there_is() || !socket_.is_open() ||
      exchange_->unsent_bytes() > kMaxShortPieceBytes) {
    return false;
  }
  const bool all = writer_.send_piece_now(exchange_->take_piece().bytes);
  exchange_->piece_sent();
  last_write_ = IoClock::now();
  return all;
}

asio::awaitable<void> Connection::wait_for_change(IoClock::time_point deadline) {
  change_timer_.expires_at(deadline);
  const auto [ignored] = co_await change_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  static_cast<void>(ignored);
}

}  // namespace heddle::server
