// SPDX-License-Identifier: Apache-2.0
// ResponseWriter: writes HTTP answers to a connection, one after another. An answer is either one
// send(), or open() and then send_piece() until one has `last` set.
//
// A client counts as too slow by its progress, not by the size of the message: a message of any
// length is sent as long as the client receives some bytes within `write_timeout_seconds`.
// Otherwise the socket is closed.
//
// Threading: confined to the I/O thread.
// Cost:      in one turn of the I/O thread at most kMaxWriteBytes are passed to the system. Private
//            to the files that see Asio (src/server/README.md).
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

// Pieces up to this size, mostly events of a stream, are written without a turn of the I/O thread.
inline constexpr size_t kMaxShortPieceBytes = 16 << 10;

// WriteProgress decides when a client that receives no bytes is given up.
//
// Threading: plain value; thread-compatible.
class WriteProgress {
 public:
  explicit WriteProgress(IoClock::duration limit) : limit_(limit) {}

  // Called when a write begins, before there is any wait for the client.
  void begin(IoClock::time_point now, int64_t taken_bytes) {
    since_ = now;
    taken_bytes_ = taken_bytes;
  }

  // Time for which the client may still receive no byte. `taken_bytes`: bytes that it has received
  // over this connection so far. Zero or negative: the client is given up.
  [[nodiscard]] IoClock::duration time_left(IoClock::time_point now, int64_t taken_bytes) {
    if (taken_bytes > taken_bytes_) begin(now, taken_bytes);
    return since_ + limit_ - now;
  }

 private:
  const IoClock::duration limit_;
  IoClock::time_point since_;  // when the client was last seen to have received bytes
  int64_t taken_bytes_ = 0;
};

class ResponseWriter {
 public:
  // The socket outlives the writer.
  ResponseWriter(ByteSocket& socket, double write_timeout_seconds);

  // Called before each answer: sets the HTTP version of the request and whether it was a HEAD.
  void begin(unsigned http_version, bool head_only) {
    http_version_ = http_version;
    head_only_ = head_only;
    bytes_sent_ = 0;
  }

  // Each of these returns false once the connection has failed. References outlive the coroutine.
  boost::asio::awaitable<bool> send_continue();
  boost::asio::awaitable<bool> send(HttpResponse response, const HttpHeaders& common_headers,
                                    bool keep_alive);

  // Begins an answer of unknown length: in chunks, or for HTTP/1.0 until the connection closes. The
  // head is sent with the first piece.
  void open(const HttpResponse& response, const HttpHeaders& common_headers, bool keep_alive);
  boost::asio::awaitable<bool> send_piece(std::string piece, bool last);

  // Sends a short piece that is not the last, without a coroutine. Only called while no coroutine
  // sends and nothing is left over. Bytes that the system does not accept at once are left_over():
  // the next send_piece() begins with them. Returns false in that case, or when the connection has
  // failed, which the next send_piece() then reports.
  [[nodiscard]] bool send_piece_now(std::string piece);

  [[nodiscard]] bool left_over() const { return left_over_; }

  // True for HTTP/1.0: the connection closes to end a body of unknown length.
  [[nodiscard]] bool ends_by_closing() const { return http_version_ < 11; }

  // Bytes of the answer, including its head and framing, that the system has accepted.
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
  std::string head_;  // bytes to send before the next piece: the head from open(), or bytes that
                      // were left over
  bool left_over_ = false;  // send_piece_now() left bytes in head_, or failed
  bool failed_ = false;
  int64_t bytes_sent_ = 0;
  int64_t total_bytes_ = 0;  // bytes written to the connection so far
  unsigned http_version_ = 11;
  bool head_only_ = false;
};

}  // namespace heddle::server
