// SPDX-License-Identifier: Apache-2.0
#include "server/server_health.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace heddle::server {

namespace {

using Json = nlohmann::ordered_json;

HttpResponse refusal(const Json& body, const char* retry_after_seconds = "5") {
  return {
      .status = 503, .headers = {{"Retry-After", retry_after_seconds}}, .body = dump_json(body)};
}

}  // namespace

void ServerHealth::set_load_progress(int64_t done_bytes, int64_t total_bytes) {
  load_done_bytes_ = done_bytes;
  load_total_bytes_ = total_bytes;
}

void ServerHealth::serve(Engine& engine) {
  engine_ = &engine;
  auto loading = State::kLoading;
  state_.compare_exchange_strong(loading, State::kReady);
}

std::optional<ApiError> ServerHealth::closed() const {
  const State state = state_;
  if (state == State::kLoading) return loading_error();
  if (state == State::kDraining) return shutting_down_error();
  return std::nullopt;
}

std::string_view ServerHealth::word(const EngineStats& stats) const {
  const State state = state_;
  if (state == State::kDraining) return "draining";
  if (state == State::kLoading) return "loading";
  if (!engine_.load()->health().ok()) return "failed";
  if (stats.last_step_seconds_ago > stats.stuck_after_seconds) return "stuck";
  return stats.paused ? "paused" : "ok";
}

HttpResponse ServerHealth::health() const {
  const EngineStats stats = loaded() ? engine_.load()->stats() : EngineStats();
  const std::string_view status = word(stats);
  if (status == "draining" || status == "failed") return refusal({{"status", status}});
  if (status == "loading") {
    const auto total = static_cast<double>(load_total_bytes_.load());
    const double progress = total > 0 ? static_cast<double>(load_done_bytes_.load()) / total : 0;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started_at_;
    return refusal({{"status", status}, {"progress", progress}, {"elapsed_s", elapsed.count()}},
                   "1");
  }
  if (status == "stuck") {
    return refusal({{"status", status},
                    {"last_step_seconds_ago", stats.last_step_seconds_ago},
                    {"stuck_after_seconds", stats.stuck_after_seconds}});
  }
  const ModelInfo& model = engine_.load()->model_info();
  return {.headers = {},
          .body = dump_json(Json{{"status", status},
                                 {"running", stats.num_running},
                                 {"waiting", stats.num_waiting},
                                 {"device", model.device},
                                 {"device_reason", model.device_reason}})};
}

HttpResponse ServerHealth::readiness() const {
  HttpResponse response = health();
  if (response.status != 200) return response;
  if (leaving_) return refusal({{"status", "draining"}});
  if (engine_.load()->stats().paused) return refusal({{"status", "paused"}});
  return response;
}

void ServerHealth::check_by_generating(const Post& post, const PostAfter& post_after,
                                       std::shared_ptr<Exchange> exchange) const {
  HttpResponse response = health();
  if (response.status == 200) {
    Engine& engine = *engine_.load();
    const EngineStats stats = engine.stats();
    if (!stats.paused && stats.num_running + stats.num_waiting == 0) {
      health_generate(engine, post, post_after, stats.stuck_after_seconds, std::move(exchange),
                      [this] { return health(); });
      return;
    }
  }
  exchange->respond(std::move(response));
}

}  // namespace heddle::server
