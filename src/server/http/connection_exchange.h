// SPDX-License-Identifier: Apache-2.0
// ConnectionExchange: the Exchange of a request that arrived over a connection. It buffers the
// handler's bytes until the connection has sent them.
//
// Threading: confined to the I/O thread, with the exceptions listed in Exchange. Private to
//            http_connection.cpp and its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "server/http/exchange.h"

namespace heddle::server {

class ConnectionExchange final : public Exchange {
 public:
  // `on_change` is called when there is more to send or the answer has ended. It can be called as
  // long as the exchange exists.
  ConnectionExchange(HttpRequest request, int64_t max_outbox_bytes, std::function<void()> on_change)
      : Exchange(std::move(request)),
        max_outbox_bytes_(max_outbox_bytes),
        on_change_(std::move(on_change)) {}

  void respond(HttpResponse response) override;
  void open_body(HttpResponse head) override;
  void open_stream(StreamFormat format) override;
  void write(std::string bytes) override;
  void finish() override;
  void break_off() override;

  [[nodiscard]] bool committed() const override { return written_; }

  [[nodiscard]] bool backed_up() const override { return backed_up_; }

  // The functions below are called by the connection.

  // The whole answer of respond(), at the first call; then none.
  [[nodiscard]] std::optional<HttpResponse> take_response() {
    return std::exchange(response_, std::nullopt);
  }

  // True when take_piece() would return something: bytes, or the end of an opened answer.
  [[nodiscard]] bool has_piece() const {
    return !outbox_.empty() || (finished_ && head_.has_value() && !taken_last_);
  }

  // Status and headers of an answer that is sent in pieces.
  [[nodiscard]] const HttpResponse& head() const { return *head_; }

  // True for server-sent events, which comments keep alive.
  [[nodiscard]] bool is_event_stream() const { return event_stream_; }

  // Whether exactly one piece is buffered, which may be sent at once and does not end the answer.
  [[nodiscard]] bool has_all_there_is() const {
    return writes_all_there_is && outbox_.size() == 1 && !finished_ && !broken_off_ &&
           !backed_up_ && !gone();
  }

  [[nodiscard]] size_t unsent_bytes() const { return unsent_bytes_; }

  struct Piece {
    std::string bytes;
    bool last = false;
  };

  // The next bytes to send. They still count as unsent until piece_sent().
  [[nodiscard]] Piece take_piece();
  void piece_sent();

  [[nodiscard]] bool broken_off() const { return broken_off_; }

  // Marks the client as gone and notifies the handler.
  void mark_gone();

 private:
  const int64_t max_outbox_bytes_;
  const std::function<void()> on_change_;
  std::optional<HttpResponse> response_;
  std::optional<HttpResponse> head_;  // status and headers of an answer sent in pieces
  std::deque<std::string> outbox_;
  size_t unsent_bytes_ = 0;     // bytes in the outbox and in the piece that was taken
  size_t in_flight_bytes_ = 0;  // bytes of the piece that was taken and is being sent
  bool answered_ = false;       // respond() was called
  bool event_stream_ = false;
  bool written_ = false;
  bool finished_ = false;
  bool taken_last_ = false;
  bool broken_off_ = false;
  bool backed_up_ = false;
};

}  // namespace heddle::server
