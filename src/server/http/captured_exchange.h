// SPDX-License-Identifier: Apache-2.0
// CapturedExchange: a request that the server sends to itself. Its answer is collected and passed
// to a function instead of a client.
//
// Threading: as for Exchange.
// Bounds:    an answer longer than kMaxCapturedBytes ends as if its client had disconnected.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "server/http/exchange.h"

namespace heddle::server {

inline constexpr size_t kMaxCapturedBytes = size_t{64} << 20;

class CapturedExchange final : public Exchange {
 public:
  // Receives the answer; status 0 means that it was cut off or too long. Not called after cancel().
  using OnAnswer = std::function<void(HttpResponse answer)>;

  CapturedExchange(HttpRequest request, OnAnswer on_answer)
      : Exchange(std::move(request)), on_answer_(std::move(on_answer)) {}

  // Abandons the request because its answer is no longer needed.
  void cancel() {
    on_answer_ = nullptr;
    leave();
  }

  void respond(HttpResponse response) override {
    if (gone()) return;
    answer(std::move(response));
  }

  void open_body(HttpResponse head) override { head_ = std::move(head); }

  void open_stream(StreamFormat) override {}

  void write(std::string bytes) override {
    if (gone()) return;
    if (bytes.size() > kMaxCapturedBytes - body_.size()) {
      answer({.status = 0, .headers = {}, .body = {}});
      leave();
      return;
    }
    body_ += bytes;
  }

  void finish() override {
    if (gone()) return;
    head_.body = std::exchange(body_, {});
    answer(std::move(head_));
  }

  void break_off() override {
    if (!gone()) answer({.status = 0, .headers = {}, .body = {}});
  }

  [[nodiscard]] bool backed_up() const override { return false; }

  [[nodiscard]] bool committed() const override { return !body_.empty(); }

 private:
  void answer(HttpResponse whole) {
    body_.clear();
    if (const OnAnswer on_answer = std::exchange(on_answer_, nullptr)) on_answer(std::move(whole));
  }

  void leave() {
    gone_ = true;
    if (const auto left = std::exchange(on_gone, nullptr)) left();
    if (const auto drained = std::exchange(on_drained, nullptr)) drained();
  }

  OnAnswer on_answer_;
  HttpResponse head_;
  std::string body_;
};

}  // namespace heddle::server
