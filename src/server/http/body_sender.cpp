// SPDX-License-Identifier: Apache-2.0
#include "server/http/body_sender.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::server {
namespace {

// Sends the pieces of a body. At any time either a worker makes the next piece or the exchange's
// on_drained waits to request it; that one keeps this object alive.
class BodySender : public std::enable_shared_from_this<BodySender> {
 public:
  BodySender(const BodyThreads& threads, std::shared_ptr<Exchange> exchange,
             std::unique_ptr<BodySource> source)
      : threads_(threads), exchange_(std::move(exchange)), source_(std::move(source)) {}

  // Requests the next piece. Called on the I/O thread while no piece is being made.
  void ask_for_piece() {
    exchange_->on_drained = nullptr;
    const auto work = [self = shared_from_this()]() mutable {
      BodySender& sender = *self;
      sender.make_piece(std::move(self));
    };
    if (!threads_.run_on_worker(work)) make_piece(shared_from_this());
  }

 private:
  // Makes a piece. `self` is this object: it is moved to the I/O thread, so that the last reference
  // ends there, where exchanges live.
  void make_piece(std::shared_ptr<BodySender> self) {
    bool more = false;
    try {
      if (!exchange_->gone()) more = source_->next(piece_);
    } catch (const std::exception& failure) {  // mostly out of memory
      log_error(
          fmt::format("{}: the answer is broken off: {}", exchange_->request().id, failure.what()));
      failed_ = true;
    }
    if (!more) source_.reset();
    threads_.post([self = std::move(self)] { self->pass_on(); });
  }

  void pass_on() {
    if (failed_) {
      exchange_->break_off();
      return;
    }
    exchange_->write(std::exchange(piece_, {}));
    if (source_ == nullptr) {
      exchange_->finish();
    } else if (exchange_->backed_up()) {
      exchange_->on_drained = [self = shared_from_this()] { self->ask_for_piece(); };
    } else {
      ask_for_piece();
    }
  }

  const BodyThreads threads_;
  const std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<BodySource> source_;  // produces the pieces; null after the last one
  std::string piece_;
  bool failed_ = false;
};

class JsonBody final : public BodySource {
 public:
  JsonBody(JsonAnswer answer, std::string begin)
      : answer_(std::move(answer)), begin_(std::move(begin)) {}

  bool next(std::string& piece) override {
    piece.swap(begin_);
    static_cast<void>(answer_.body.next(piece, kBodyPieceBytes));
    return !answer_.body.done();
  }

 private:
  JsonAnswer answer_;
  std::string begin_;  // the beginning of the body, which is written already
};

}  // namespace

void send_body(const BodyThreads& threads, std::shared_ptr<Exchange> exchange,
               std::unique_ptr<BodySource> source) {
  std::make_shared<BodySender>(threads, std::move(exchange), std::move(source))->ask_for_piece();
}

void send_json(const BodyThreads& threads, std::shared_ptr<Exchange> exchange, HttpHeaders headers,
               JsonAnswer answer) {
  HttpResponse response{.headers = std::move(headers), .body = {}};
  static_cast<void>(answer.body.next(response.body, kShortBodyBytes));
  if (answer.body.done()) {
    exchange->respond(std::move(response));
    return;
  }
  auto body = std::make_unique<JsonBody>(std::move(answer), std::exchange(response.body, {}));
  exchange->open_body(std::move(response));
  send_body(threads, std::move(exchange), std::move(body));
}

}  // namespace heddle::server
