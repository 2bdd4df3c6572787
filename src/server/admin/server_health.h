// SPDX-License-Identifier: Apache-2.0
// ServerHealth: the state of the server (loading, ready, draining) and its answers to health
// probes.
//
// Threading: set_load_progress(), serve(), announce_shutdown() and begin_drain() are called by the
//            server's owner, draining() by any thread, the other functions on the I/O thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include <heddle/engine.h>

#include "server/admin/engine_control.h"
#include "server/http/api_error.h"
#include "server/http/exchange.h"
#include "server/http/http_message.h"

namespace heddle::server {

// Runs a function on the I/O thread some seconds later. Called on the I/O thread.
using PostAfter = std::function<void(double seconds, std::function<void()>)>;

class ServerHealth {
 public:
  void set_load_progress(int64_t done_bytes, int64_t total_bytes);

  // Marks the server as ready, unless a drain has begun. `engine` outlives the I/O thread.
  void serve(Engine& engine);

  // Refuses readiness probes from now on, because a drain will follow.
  void announce_shutdown() { leaving_ = true; }

  void begin_drain() { state_ = State::kDraining; }

  // Whether serve() was called.
  [[nodiscard]] bool loaded() const { return engine_ != nullptr; }

  [[nodiscard]] bool draining() const { return state_ == State::kDraining; }

  // The error for routes that need the model if none is served now; none if it is.
  [[nodiscard]] std::optional<ApiError> closed() const;

  // The state in one word: "ok", or the problem. `stats` are the engine's, if there is one.
  [[nodiscard]] std::string_view word(const EngineStats& stats) const;

  // GET /health and GET /readyz. /health: a paused engine is healthy. /readyz refuses while paused,
  // because new requests would wait until the engine is resumed. With `strict` it also refuses
  // while max_queued_requests wait.
  [[nodiscard]] HttpResponse health() const;
  [[nodiscard]] HttpResponse readiness(bool strict) const;

  // GET /health_generate. The steps of a busy engine show that it works, so only an idle one is
  // asked to draw a token. Answers like /health if the token was drawn in time, or if there is a
  // reason that it was not: the engine is paused, its queue is full, it computes steps for other
  // requests. Otherwise 503 `stuck`, naming what is missing. Never blocks.
  void check_by_generating(const Post& post, const PostAfter& post_after,
                           std::shared_ptr<Exchange> exchange) const;

 private:
  enum class State { kLoading, kReady, kDraining };

  std::atomic<State> state_{State::kLoading};
  std::atomic<bool> leaving_{false};
  std::atomic<Engine*> engine_{nullptr};
  std::atomic<int64_t> load_done_bytes_{0};
  std::atomic<int64_t> load_total_bytes_{0};
  const std::chrono::steady_clock::time_point started_at_ = std::chrono::steady_clock::now();
};

}  // namespace heddle::server
