// SPDX-License-Identifier: Apache-2.0
// How a request is read: its head, what the handler says of it, and its body as far as that is
// kept.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/beast/http/read.hpp>
#include <boost/none.hpp>
#include <fmt/format.h>

#include "server/tcp_connection.h"

namespace heddle::server {
namespace {

// A body that nobody reads, as a refused request's, is read and dropped up to here, so that the
// connection can be kept.
constexpr uint64_t kMaxDroppedBytes = 1 << 20;

HttpRequest head_of(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.arrived_at = Clock::now();
  request.method = std::string(message.method_string());
  const std::string_view target = origin_form({message.target().data(), message.target().size()});
  const size_t path_end = std::min(target.find('?'), target.size());
  request.path = path_end == 0 ? "/" : percent_decode(target.substr(0, path_end));
  request.query = std::string(target.substr(std::min(path_end + 1, target.size())));
  for (const auto& field : message) {
    request.headers.emplace_back(
        lower_case({field.name_string().data(), field.name_string().size()}),
        std::string(field.value().data(), field.value().size()));
  }
  return request;
}

// The Transfer-Encoding of a body whose end is not known from it: any but plain chunks, and any of
// HTTP/1.0, which has none.
std::optional<std::string> unknown_coding(const HttpRequest& request, unsigned http_version) {
  for (const auto& [name, value] : request.headers) {
    if (name != "transfer-encoding") continue;
    if (http_version < 11 || lower_case(value) != "chunked") return value;
  }
  return std::nullopt;
}

// An error that is the client's bytes' fault, not the connection's.
bool is_malformed(const error_code& error) {
  return error.category() == make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

std::string too_large(uint64_t max_bytes) {
  return fmt::format("The request body may have at most {} bytes.", max_bytes);
}

}  // namespace

bool TcpConnection::expects_continue(const Parser& parser) const {
  return http_version_ >= 11 && beast::iequals(parser.get()[http::field::expect], "100-continue");
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

// False when none came, or none that can be read: that is answered here.
asio::awaitable<bool> TcpConnection::read_head(Parser& parser) {
  parser.header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  parser.body_limit(boost::none);  // serve_one() looks at what is announced
  reading_since_ = Clock::now();
  start_deadline(options_.header_timeout_seconds);
  const auto [error, count] = co_await http::async_read_header(stream_, buffer_, parser, kAwait);
  static_cast<void>(count);
  stop_deadline();
  if (!error) co_return true;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_await refuse(431, fmt::format("The request header may have at most {} bytes.",
                                     options_.max_header_bytes));
  } else if (deadline_passed_) {
    co_await refuse(408, fmt::format("The request header did not arrive within {} s.",
                                     options_.header_timeout_seconds));
  } else if (is_malformed(error)) {
    co_await refuse(400, fmt::format("The request is not valid HTTP: {}.", error.message()));
  }
  co_return false;
}

asio::awaitable<bool> TcpConnection::serve_one() {
  if (buffer_.size() == 0 && !co_await await_request()) co_return false;
  common_headers_.clear();
  request_.reset();
  keep_alive_ = false;
  head_only_ = false;
  doubtful_ = false;
  Parser parser;
  if (!co_await read_head(parser)) co_return false;

  request_ = head_of(parser.get());
  reading_since_ = Clock::now();
  http_version_ = parser.get().version();
  keep_alive_ = parser.keep_alive() && !stopping_;
  head_only_ = request_->method == "HEAD";
  Admission admission = handler_.on_head(*request_, common_headers_);
  if (const auto coding = unknown_coding(*request_, http_version_)) {
    // What follows could be the body or the next request.
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
  if (!parser.is_done()) {
    const auto announced = parser.content_length_remaining();  // none where it comes in chunks
    if (refusal && (expects_continue(parser) || !announced || *announced > max_bytes)) {
      co_await refuse(std::move(*refusal));
      co_return false;
    }
    if (announced && *announced > max_bytes) {
      co_await refuse(413, too_large(max_bytes));
      co_return false;
    }
    parser.body_limit(max_bytes);
  }
  BodyLease lease(budget_);
  if (!co_await read_body(parser, max_bytes, kept ? &lease : nullptr)) co_return false;
  request_->body = std::move(parser.get().body());

  exchange_ = std::make_shared<ConnectionExchange>(*std::exchange(request_, std::nullopt),
                                                   shared(this), options_.max_outbox_bytes);
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
// `max_bytes` are refused. False when the body did not come whole.
asio::awaitable<bool> TcpConnection::read_body(Parser& parser, uint64_t max_bytes,
                                               BodyLease* lease) {
  if (parser.is_done()) co_return true;
  if (expects_continue(parser) && !co_await send("HTTP/1.1 100 Continue\r\n\r\n")) {
    note_unread(kClientLeft, 0);
    co_return false;
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
    co_await refuse(503, "The server holds as many bytes of requests as it may. Retry later.");
    co_return false;
  }
  if (!error) co_return true;
  if (error == http::error::buffer_overflow) {
    co_await refuse(
        431, fmt::format("The head of a chunk and the trailer may have at most {} bytes each.",
                         buffer_.max_size()));
  } else if (deadline_passed_) {
    co_await refuse(408, fmt::format("The request body did not arrive within {} s.",
                                     options_.body_timeout_seconds));
  } else if (error == http::error::body_limit) {
    co_await refuse(413, too_large(max_bytes));
  } else if (is_malformed(error)) {
    co_await refuse(400, fmt::format("The request is not valid HTTP: {}.", error.message()));
  } else if (stream_.socket().is_open()) {
    note_unread(kClientLeft, 0);
  }
  co_return false;
}

}  // namespace heddle::server
