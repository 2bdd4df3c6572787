// SPDX-License-Identifier: Apache-2.0
#include "server/http/request_reader.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/none.hpp>
#include <fmt/format.h>

#include "core/printable.h"
#include "server/http/web_origin.h"

namespace heddle::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr auto kAwaitRead = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 8 << 10;
constexpr size_t kMaxReadBytes = 64 << 10;  // most bytes of a body that one read returns
// Most bytes of the next request that are read while this one is answered.
constexpr size_t kMaxReadAheadBytes = 64 << 10;
constexpr size_t kMaxInputDroppedBytes = 256 << 20;

// Whether the error lies in the client's bytes and not in the connection.
bool is_malformed(const error_code& error) {
  return error.category() == make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

ReadFailure folded_header() {
  return {.status = 400,
          .message =
              "A header goes on in a second line, which HTTP/1.1 has abolished (RFC 9112, "
              "5.2); send it in one line."};
}

}  // namespace

RequestReader::RequestReader(ByteSocket& socket, const HttpServerOptions& options)
    : socket_(socket),
      options_(options),
      // Space for a whole head, or the trailer of a chunked body, and for bytes read beyond it.
      buffer_(static_cast<size_t>(options.max_header_bytes) + kMaxReadAheadBytes + kReadBytes),
      deadline_(socket.get_executor()) {}

// Cancels the current read when the time is up; the connection stays open for an answer.
void RequestReader::start_deadline(double limit_seconds) {
  deadline_passed_ = false;
  deadline_.start(seconds(limit_seconds), [this] {
    deadline_passed_ = true;
    error_code ignored;
    socket_.cancel(ignored);
  });
}

asio::awaitable<bool> RequestReader::await_request(double limit_seconds) {
  drop_empty_lines();
  if (request_has_begun()) co_return true;
  waiting_ = true;
  start_deadline(limit_seconds);
  error_code error;
  while (!error && !deadline_passed_ && !request_has_begun()) {
    size_t count = 0;
    std::tie(error, count) =
        co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwaitRead);
    // Accepts bytes that arrived just before the deadline.
    if (deadline_passed_ && error) {
      count = socket_.read_some(buffer_.prepare(kReadBytes), error);
    }
    buffer_.commit(error ? 0 : count);
    drop_empty_lines();
  }
  deadline_.stop();
  waiting_ = false;
  co_return request_has_begun();
}

// Drops empty lines before a request (RFC 9112, 2.2). Some clients end a body with one.
void RequestReader::drop_empty_lines() {
  while (unparsed().starts_with("\r\n")) buffer_.consume(2);
}

bool RequestReader::request_has_begun() const { return !unparsed().empty() && unparsed() != "\r"; }

std::string_view RequestReader::unparsed() const {
  return {static_cast<const char*>(buffer_.data().data()), buffer_.size()};
}

void RequestReader::limit_wait(double limit_seconds) {
  if (waiting_) start_deadline(limit_seconds);
}

ReadFailure RequestReader::failure_of(const error_code& error) const {
  if (!is_malformed(error)) return {};
  return {.status = 400,
          .message = fmt::format("The request is not valid HTTP: {}.", error.message())};
}

// Reads a head. If its fields arrive one by one, the parser limits only each of them, so their sum
// is limited here.
asio::awaitable<error_code> RequestReader::receive_head() {
  const auto max_bytes = static_cast<size_t>(options_.max_header_bytes);
  size_t parsed_bytes = 0;
  while (true) {
    error_code error;
    const size_t count = parser_->put(buffer_.data(), error);
    note_folding(unparsed().substr(0, count));
    buffer_.consume(count);
    parsed_bytes += count;
    const bool incomplete = error == http::error::need_more;
    if (error && !incomplete) co_return error;
    const size_t least_bytes = parsed_bytes + (incomplete ? buffer_.size() + 1 : 0);
    if (least_bytes > max_bytes) co_return make_error_code(http::error::header_limit);
    if (!incomplete) co_return error_code();
    if (deadline_passed_) co_return make_error_code(asio::error::operation_aborted);
    const auto [failure, received] =
        co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwaitRead);
    if (failure) co_return failure;
    buffer_.commit(received);
  }
}

// Detects folded lines, which the parser joins. HTTP/1.1 requires refusing them, because a proxy
// may have interpreted them differently.
void RequestReader::note_folding(std::string_view parsed) {
  for (const char c : parsed) {
    is_folded_ = is_folded_ || (at_line_begin_ && (c == ' ' || c == '\t'));
    at_line_begin_ = c == '\n';
  }
}

std::optional<ReadFailure> RequestReader::check_head() const {
  const auto refuse = [](std::string message) {
    return ReadFailure{.status = 400, .message = std::move(message)};
  };
  if (is_folded_) return folded_header();
  const auto& message = parser_->get();
  const auto num_hosts = message.count(http::field::host);
  if (num_hosts > 1) return refuse("The request has several Host headers; send one.");
  if (num_hosts == 0 && http_version() >= 11) {
    return refuse("The request has no Host header, which HTTP/1.1 wants of every request.");
  }
  const bool is_unix_socket = options_.host.starts_with(kUnixPrefix);
  const std::string host(host_of_head());
  if (is_unix_socket || host.empty() || parse_host(host)) return std::nullopt;
  return refuse(
      fmt::format("The Host is \"{}\"; it must be a name or an address, and may have a "
                  "port: llm.example:30000 or [::1]:30000.",
                  printable(host, 200)));
}

// The host of the request: that of a target with scheme and host, else that of the Host header (RFC
// 9112, 3.2.2).
std::string_view RequestReader::host_of_head() const {
  const auto& message = parser_->get();
  const std::string_view target(message.target().data(), message.target().size());
  if (const auto authority = authority_of(target); !authority.empty()) return authority;
  const auto host = message[http::field::host];
  return {host.data(), host.size()};
}

asio::awaitable<std::optional<ReadFailure>> RequestReader::read_head() {
  at_line_begin_ = is_folded_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  parser_->body_limit(boost::none);  // no limit here: the caller checks announced_bytes()
  start_deadline(options_.header_timeout_seconds);
  const error_code error = co_await receive_head();
  deadline_.stop();
  if (!error) co_return check_head();
  if (error == http::error::header_limit) {
    co_return ReadFailure{431, fmt::format("The request header may have at most {} bytes.",
                                           options_.max_header_bytes)};
  }
  if (deadline_passed_) {
    co_return ReadFailure{408, fmt::format("The request header did not arrive within {} s.",
                                           options_.header_timeout_seconds)};
  }
  co_return failure_of(error);
}

HttpRequest RequestReader::head() const {
  const auto& message = parser_->get();
  HttpRequest request;
  request.arrived_at = IoClock::now();
  request.method = std::string(message.method_string());
  const std::string_view target = origin_form({message.target().data(), message.target().size()});
  const size_t path_end = std::min(target.find('?'), target.size());
  request.path = path_end == 0 ? "/" : percent_decode(target.substr(0, path_end));
  request.query = std::string(target.substr(std::min(path_end + 1, target.size())));
  for (const auto& field : message) {
    request.headers.emplace_back(
        lower_case({field.name_string().data(), field.name_string().size()}),
        field.name() == http::field::host
            ? std::string(host_of_head())
            : std::string(field.value().data(), field.value().size()));
  }
  return request;
}

bool RequestReader::expects_continue() const {
  return http_version() >= 11 &&
         beast::iequals(parser_->get()[http::field::expect], "100-continue");
}

std::optional<uint64_t> RequestReader::announced_bytes() const {
  const auto bytes = parser_->content_length_remaining();
  return bytes ? std::optional<uint64_t>(*bytes) : std::nullopt;
}

// Reads one part of the body: some of its bytes, the head of a chunk, or the last chunk with its
// trailer.
asio::awaitable<error_code> RequestReader::receive_body_part() {
  error_code error = http::error::need_more;
  if (buffer_.size() > 0) {
    const size_t count = parser_->put(buffer_.data(), error);
    if (parser_->is_done() && parser_->chunked()) note_folding(unparsed().substr(0, count));
    buffer_.consume(count);
  }
  if (error != http::error::need_more) co_return error;
  const size_t room = beast::read_size(buffer_, kMaxReadBytes);
  if (room == 0) co_return make_error_code(http::error::buffer_overflow);
  const auto [failure, received] =
      co_await socket_.async_read_some(buffer_.prepare(room), kAwaitRead);
  buffer_.commit(failure ? 0 : received);
  co_return failure;
}

asio::awaitable<std::optional<ReadFailure>> RequestReader::read_body(uint64_t max_bytes,
                                                                     BodyLease* lease) {
  parser_->body_limit(max_bytes);
  start_deadline(options_.body_timeout_seconds);
  error_code error;
  bool taken = true;
  while (!error && taken && !deadline_passed_ && !parser_->is_done()) {
    error = co_await receive_body_part();
    std::string& body = parser_->get().body();
    if (lease == nullptr) {
      body.clear();
    } else {
      taken = lease->grow_to(static_cast<int64_t>(body.size()));
    }
  }
  deadline_.stop();
  if (!taken) {
    lease->release();
    std::string().swap(parser_->get().body());
    co_return ReadFailure{503,
                          "The server keeps as many bytes of requests as it may. Retry later."};
  }
  if (!error && parser_->is_done()) {
    co_return is_folded_ ? std::optional(folded_header()) : std::nullopt;
  }
  if (error == http::error::buffer_overflow) {
    co_return ReadFailure{
        431, fmt::format("The head of a chunk and the trailer may have at most {} bytes each.",
                         buffer_.max_size())};
  }
  if (deadline_passed_) {
    co_return ReadFailure{408, fmt::format("The request body did not arrive within {} s.",
                                           options_.body_timeout_seconds)};
  }
  if (error == http::error::body_limit) {
    co_return ReadFailure{413,
                          fmt::format("The request body may have at most {} bytes.", max_bytes)};
  }
  co_return failure_of(error);
}

void RequestReader::watch(std::shared_ptr<void> owner, std::function<void()> on_gone) {
  on_gone_ = std::move(on_gone);
  watch_on(std::move(owner));
}

void RequestReader::watch_on(std::shared_ptr<void> owner) {
  const bool full = buffer_.size() >= kMaxReadAheadBytes;
  const auto event = full ? ByteSocket::wait_error : ByteSocket::wait_read;
  auto on_event = [this, full, owner = std::move(owner)](const error_code& error) mutable {
    if (error || on_gone_ == nullptr) return;
    error_code failure;
    const size_t count = full ? 0 : socket_.read_some(buffer_.prepare(kReadBytes), failure);
    const bool nothing = failure == asio::error::would_block || failure == asio::error::try_again;
    if (full || (failure && !nothing)) {
      std::exchange(on_gone_, nullptr)();
      return;
    }
    buffer_.commit(failure ? 0 : count);
    watch_on(std::move(owner));
  };
  socket_.async_wait(event,
                     asio::bind_cancellation_slot(stop_watching_.slot(), std::move(on_event)));
}

void RequestReader::stop_watching() {
  on_gone_ = nullptr;
  stop_watching_.emit(asio::cancellation_type::terminal);
}

asio::awaitable<void> RequestReader::drop_input(double limit_seconds) {
  start_deadline(limit_seconds);
  std::string dropped(kMaxReadAheadBytes, '\0');
  error_code error;
  for (size_t total = 0; !error && !deadline_passed_ && total < kMaxInputDroppedBytes;) {
    const auto [failure, count] =
        co_await socket_.async_read_some(asio::buffer(dropped), kAwaitRead);
    error = failure;
    total += count;
  }
  deadline_.stop();
}

}  // namespace heddle::server
