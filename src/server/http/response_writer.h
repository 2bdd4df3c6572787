// SPDX-License-Identifier: Apache-2.0
// ResponseWriter: writes HTTP answers to a connection, one after another. An answer is either one
// send(), or open(), any number of send_piece() and among them a last one.
//
// Progress, not size, decides whether a client is too slow: a message of any length is sent as long
// as the client takes some of its bytes within `write_timeout_seconds`. Otherwise the socket is
// closed.
//
// Threading: confined to the I/O thread.
// Cost:      a turn of the I/O thread passes at most kMaxWriteBytes to the system.
// Private to the files that see Asio (src/server/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>

#include "server/http/byte_socket.h"
#include "server/http/deadline.h"
#include "server/http/http_message.h"

// g++ 12 mistakes the frame allocator of Asio's coroutines for a mismatched one.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace heddle::server {

inline constexpr size_t kMaxWriteBytes = 256 << 10;

// Events of a stream, mostly. Longer pieces are worth a turn of the I/O thread.
inline constexpr size_t kMaxShortPieceBytes = 16 << 10;

// WriteProgress decides when a client that takes no bytes is given up.
//
// Threading: a value.
class WriteProgress {
 public:
  explicit WriteProgress(IoClock::duration limit) : limit_(limit) {}

  // A write begins: there has been no wait for the client so far.
  void begin(IoClock::time_point now, int64_t taken_bytes) {
    since_ = now;
    taken_bytes_ = taken_bytes;
  }

  // How long the client may go on without taking a byte. `taken_bytes`: of the connection so far.
  // Not positive: it is given up.
  [[nodiscard]] IoClock::duration time_left(IoClock::time_point now, int64_t taken_bytes) {
    if (taken_bytes > taken_bytes_) begin(now, taken_bytes);
    return since_ + limit_ - now;
  }

 private:
  const IoClock::duration limit_;
  IoClock::time_point since_;  // when the client was last seen to have taken something
  int64_t taken_bytes_ = 0;
};

class ResponseWriter {
 public:
  // The socket outlives the writer.
  ResponseWriter(ByteSocket& socket, double write_timeout_seconds);

  // The next answer is to a request of this kind.
  void begin(unsigned http_version, bool head_only) {
    http_version_ = http_version;
    head_only_ = head_only;
    bytes_sent_ = 0;
  }

  // Each of these is false once the connection has failed. References outlive the coroutine.
  boost::asio::awaitable<bool> send_continue();
  boost::asio::awaitable<bool> send(HttpResponse response, const HttpHeaders& common_headers,
                                    bool keep_alive);

  // An answer whose length is not known: in chunks, or for HTTP/1.0 until the connection closes.
  // The head is sent with the first piece.
  void open(const HttpResponse& response, const HttpHeaders& common_headers, bool keep_alive);
  boost::asio::awaitable<bool> send_piece(std::string piece, bool last);

  // Sends a short piece that is not the last, not by a coroutine, and while none sends and nothing
  // is left over. Bytes that the system does not take at once are left_over(): the next
  // send_piece() begins with them. False when there is such, or the connection has failed, as the
  // next send_piece() says.
  [[nodiscard]] bool send_piece_now(std::string piece);

  [[nodiscard]] bool left_over() const { return left_over_; }

  // A body of unknown length ends with the connection.
  [[nodiscard]] bool ends_by_closing() const { return http_version_ < 11; }

  // Bytes of the answer, its head and its framing that the system has taken.
  [[nodiscard]] int64_t bytes_sent() const { return bytes_sent_; }

 private:
  enum class Framing { kLength, kChunked, kUntilClose };

  [[nodiscard]] std::string head_of(const HttpResponse& response, const HttpHeaders& common_headers,
                                    Framing framing, bool keep_alive) const;
  boost::asio::awaitable<bool> write(std::vector<boost::asio::const_buffer> buffers);
  [[nodiscard]] std::string framed(std::string piece, bool last);
  [[nodiscard]] bool write_now(std::string& bytes, bool& alive);
  void expect_progress(IoClock::duration limit);
  [[nodiscard]] int64_t taken_bytes();

  ByteSocket& socket_;
  const IoClock::duration write_timeout_;
  WriteProgress progress_{write_timeout_};
  Deadline deadline_;
  std::string head_;        // goes before the next piece: of open(), or what was left over
  bool left_over_ = false;  // by send_piece_now(): bytes in head_, or a failure
  bool failed_ = false;
  int64_t bytes_sent_ = 0;
  int64_t total_bytes_ = 0;  // of the connection
  unsigned http_version_ = 11;
  bool head_only_ = false;
};

}  // namespace heddle::server
