// SPDX-License-Identifier: Apache-2.0
// ServerHealth: how far the server has come (loading, ready, draining), and what it tells those
// who probe it.
//
// Threading: set_load_progress(), serve(), announce_shutdown() and begin_drain() are called by the
//            server's owner, draining() by any thread, the rest on the I/O thread.
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

// Runs a function on the I/O thread some seconds later. Called there.
using PostAfter = std::function<void(double seconds, std::function<void()>)>;

class ServerHealth {
 public:
  void set_load_progress(int64_t done_bytes, int64_t total_bytes);

  // Requests are served from now on, unless a drain has begun. `engine` outlives the I/O thread.
  void serve(Engine& engine);

  // Probes of readiness are refused from now on: a drain will follow.
  void announce_shutdown() { leaving_ = true; }

  void begin_drain() { state_ = State::kDraining; }

  // Whether serve() was called.
  [[nodiscard]] bool loaded() const { return engine_ != nullptr; }

  [[nodiscard]] bool draining() const { return state_ == State::kDraining; }

  // Why no route that needs the model is served now.
  [[nodiscard]] std::optional<ApiError> closed() const;

  // One word: "ok", or what is the matter. `stats` are the engine's, if there is one.
  [[nodiscard]] std::string_view word(const EngineStats& stats) const;

  // GET /health. A paused engine is healthy; GET /readyz refuses: requests that come now wait until
  // it is resumed. With `strict` it refuses also while max_queued_requests wait.
  [[nodiscard]] HttpResponse health() const;
  [[nodiscard]] HttpResponse readiness(bool strict) const;

  // GET /health_generate. An engine that generates shows by its steps that it can: only an idle one
  // is asked to draw a token. Answers as /health does by then when the token came in time, or when
  // there is a reason that none did: the engine is paused, its queue is full, it makes steps for
  // others. Else 503 `stuck`, with what was missed. Blocks nothing.
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
