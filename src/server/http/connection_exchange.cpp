// SPDX-License-Identifier: Apache-2.0
#include "server/http/connection_exchange.h"

namespace heddle::server {
namespace {

// Writes are joined into pieces of up to this many bytes, each sent as one chunk by one system
// call.
constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

void ConnectionExchange::respond(HttpResponse response) {
  if (gone() || answered_ || written_) return;
  answered_ = true;
  response_ = std::move(response);
  on_change_();
}

void ConnectionExchange::open_body(HttpResponse head) {
  head_ = std::move(head);
  event_stream_ = false;
}

void ConnectionExchange::open_stream(StreamFormat format) {
  event_stream_ = format == StreamFormat::kEvents;
  head_ = HttpResponse{
      .content_type = event_stream_ ? "text/event-stream; charset=utf-8" : "application/x-ndjson",
      .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
      .body = {}};
  on_change_();
}

void ConnectionExchange::write(std::string bytes) {
  if (gone() || finished_ || answered_ || bytes.empty()) return;
  written_ = true;
  unsent_bytes_ += bytes.size();
  if (!outbox_.empty() && outbox_.back().size() + bytes.size() <= kPieceBytes) {
    outbox_.back() += bytes;
  } else {
    outbox_.push_back(std::move(bytes));
  }
  if (unsent_bytes_ > static_cast<size_t>(max_outbox_bytes_)) backed_up_ = true;
  on_change_();
}

void ConnectionExchange::finish() {
  if (answered_) return;
  finished_ = true;
  written_ = true;
  on_change_();
}

void ConnectionExchange::break_off() {
  broken_off_ = true;
  on_change_();
}

ConnectionExchange::Piece ConnectionExchange::take_piece() {
  Piece piece;
  if (!outbox_.empty()) {
    piece.bytes = std::move(outbox_.front());
    outbox_.pop_front();
  }
  in_flight_bytes_ = piece.bytes.size();
  piece.last = finished_ && outbox_.empty();
  taken_last_ = piece.last;
  return piece;
}

void ConnectionExchange::piece_sent() {
  unsent_bytes_ -= std::exchange(in_flight_bytes_, 0);
  if (!backed_up_ || unsent_bytes_ > static_cast<size_t>(max_outbox_bytes_) / 2) return;
  backed_up_ = false;
  // Calls a copy, because the function may replace on_drained.
  if (const auto call = on_drained) call();
}

void ConnectionExchange::mark_gone() {
  if (gone_.exchange(true)) return;
  outbox_.clear();
  if (on_gone) std::exchange(on_gone, nullptr)();
  if (on_drained) std::exchange(on_drained, nullptr)();
}

}  // namespace heddle::server
