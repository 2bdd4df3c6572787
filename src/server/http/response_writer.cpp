// SPDX-License-Identifier: Apache-2.0
#include "server/http/response_writer.h"

#include <ctime>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/buffers_prefix.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/buffers_suffix.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/status.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

namespace heddle::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr auto kAwaitWrite = asio::as_tuple(asio::use_awaitable);

// The reason phrase of a status, including statuses that the library does not know: clients show
// it, and some require one.
std::string reason_of(int status) {
  constexpr int kOverloaded = 529;
  const auto known = http::int_to_status(static_cast<unsigned>(status));
  if (known != http::status::unknown) return std::string(http::obsolete_reason(known));
  if (status == kOverloaded) return "Overloaded";
  if (status >= 500) return "Server Error";
  return status >= 400 ? "Client Error" : "OK";
}

}  // namespace

ResponseWriter::ResponseWriter(ByteSocket& socket, double write_timeout_seconds)
    : socket_(socket),
      write_timeout_(seconds(write_timeout_seconds)),
      deadline_(socket.get_executor()) {}

// Bytes of this connection that the client's system has acknowledged.
int64_t ResponseWriter::taken_bytes() {
  int waiting = 0;
  if (ioctl(socket_.native_handle(), SIOCOUTQ, &waiting) != 0) waiting = 0;
  return total_bytes_ - waiting;
}

void ResponseWriter::expect_progress(IoClock::duration limit) {
  deadline_.start(limit, [this] {
    const IoClock::duration left = progress_.time_left(IoClock::now(), taken_bytes());
    if (left > IoClock::duration::zero()) return expect_progress(left);
    boost::system::error_code ignored;
    socket_.close(ignored);  // closing the socket ends the pending write
  });
}

asio::awaitable<bool> ResponseWriter::write(std::vector<asio::const_buffer> buffers) {
  beast::buffers_suffix<std::vector<asio::const_buffer>> rest(std::move(buffers));
  progress_.begin(IoClock::now(), taken_bytes());
  expect_progress(write_timeout_);
  bool alive = true;
  while (alive && beast::buffer_bytes(rest) > 0) {
    const auto [error, count] =
        co_await socket_.async_write_some(beast::buffers_prefix(kMaxWriteBytes, rest), kAwaitWrite);
    rest.consume(count);
    bytes_sent_ += static_cast<int64_t>(count);
    total_bytes_ += static_cast<int64_t>(count);
    alive = !error;
  }
  deadline_.stop();
  co_return alive;
}

asio::awaitable<bool> ResponseWriter::send_continue() {
  return write({asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n"))});
}

asio::awaitable<bool> ResponseWriter::send(HttpResponse response, const HttpHeaders& common_headers,
                                           bool keep_alive) {
  const std::string head = head_of(response, common_headers, Framing::kLength, keep_alive);
  std::vector<asio::const_buffer> buffers{asio::buffer(head)};
  if (!head_only_ && !response.body.empty()) buffers.push_back(asio::buffer(response.body));
  co_return co_await write(std::move(buffers));
}

void ResponseWriter::open(const HttpResponse& response, const HttpHeaders& common_headers,
                          bool keep_alive) {
  head_ = head_of(response, common_headers,
                  ends_by_closing() ? Framing::kUntilClose : Framing::kChunked, keep_alive);
}

// A short piece with its head and chunk framing, so that one system call can write it.
std::string ResponseWriter::framed(std::string piece, bool last) {
  if (!piece.empty() && !ends_by_closing()) {
    piece.insert(0, fmt::format("{:x}\r\n", piece.size()));
    piece += "\r\n";
  }
  if (last && !ends_by_closing()) piece += "0\r\n\r\n";
  if (!head_.empty()) piece.insert(0, std::exchange(head_, {}));
  return piece;
}

// Writes as much as the system accepts at once, without a turn of the I/O thread. Returns true when
// that was everything, or the connection has failed.
bool ResponseWriter::write_now(std::string& bytes, bool& alive) {
  boost::system::error_code error;
  const size_t count = socket_.write_some(asio::buffer(bytes), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return false;
  bytes_sent_ += static_cast<int64_t>(count);
  total_bytes_ += static_cast<int64_t>(count);
  alive = !error;
  if (error || count == bytes.size()) return true;
  bytes.erase(0, count);
  return false;
}

bool ResponseWriter::send_piece_now(std::string piece) {
  if (head_only_) return true;
  head_ = framed(std::move(piece), /*last=*/false);
  bool alive = true;
  left_over_ = !write_now(head_, alive) || !alive;
  failed_ = !alive;
  if (!left_over_) head_.clear();
  return !left_over_;
}

asio::awaitable<bool> ResponseWriter::send_piece(std::string piece, bool last) {
  left_over_ = false;
  if (failed_) co_return false;
  if (!head_only_ && piece.size() <= kMaxShortPieceBytes) {
    std::string bytes = framed(std::move(piece), last);
    bool alive = true;
    if (bytes.empty() || write_now(bytes, alive)) co_return alive;
    std::vector<asio::const_buffer> rest{asio::buffer(bytes)};
    co_return co_await write(std::move(rest));
  }
  const std::string head = std::exchange(head_, {});
  std::vector<asio::const_buffer> buffers;
  if (!head.empty()) buffers.push_back(asio::buffer(head));
  if (head_only_) co_return co_await write(std::move(buffers));
  const auto chunk = http::make_chunk(asio::buffer(piece));
  const auto end = http::make_chunk_last();
  if (!piece.empty() && ends_by_closing()) buffers.push_back(asio::buffer(piece));
  if (!piece.empty() && !ends_by_closing()) {
    for (const asio::const_buffer part : beast::buffers_range_ref(chunk)) buffers.push_back(part);
  }
  if (last && !ends_by_closing()) {
    for (const asio::const_buffer part : beast::buffers_range_ref(end)) buffers.push_back(part);
  }
  co_return co_await write(std::move(buffers));
}

std::string ResponseWriter::head_of(const HttpResponse& response, const HttpHeaders& common_headers,
                                    Framing framing, bool keep_alive) const {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", response.status,
                  reason_of(response.status), fmt::gmtime(std::time(nullptr)));
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (response.status != 204) {
    add("Content-Type", response.content_type);
    if (framing == Framing::kChunked) add("Transfer-Encoding", "chunked");
    if (framing == Framing::kLength) {
      add("Content-Length", fmt::format_int(response.body.size()).str());
    }
  }
  for (const auto& [name, value] : response.headers) add(name, value);
  for (const auto& [name, value] : common_headers) add(name, value);
  if (!keep_alive || framing == Framing::kUntilClose) {
    add("Connection", "close");
  } else if (http_version_ < 11) {
    add("Connection", "keep-alive");
  }
  head += "\r\n";
  return head;
}

}  // namespace heddle::server
