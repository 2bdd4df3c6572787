// SPDX-License-Identifier: Apache-2.0
#include "server/admin/server_health.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/http/json_text.h"

namespace heddle::server {

namespace {

using Json = nlohmann::ordered_json;

HttpResponse refusal(const Json& body, const char* retry_after_seconds = "5") {
  return {
      .status = 503, .headers = {{"Retry-After", retry_after_seconds}}, .body = dump_json(body)};
}

// One request to /health_generate in progress; used on the I/O thread only.
struct Probe {
  const Engine& engine;
  std::function<HttpResponse()> health;
  std::shared_ptr<Exchange> exchange;  // null once the request is answered
  int64_t steps_before;                // the engine's number of steps when the request arrived

  // Answers like /health; if that would be 200 and the engine is not `in_order`, 503 with
  // `failure`.
  void answer(bool in_order, std::string_view failure) {
    if (exchange == nullptr) return;
    HttpResponse response = health();
    if (response.status == 200 && !in_order) {
      response = {.status = 503,
                  .headers = {{"Retry-After", "5"}},
                  .body = dump_json(Json{{"status", "stuck"}, {"message", failure}})};
    }
    exchange->on_gone = nullptr;
    std::exchange(exchange, nullptr)->respond(std::move(response));
  }

  // True if the engine is paused, or has computed a step since the request arrived.
  [[nodiscard]] bool has_reason_to_wait() const {
    const EngineStats stats = engine.stats();
    return stats.paused || stats.steps != steps_before;
  }

  // Judges the end of the probe's own engine request. An abort without an error was caused by a
  // pause, which may have ended, or by the shutdown; one with an error means that the time limit
  // passed.
  [[nodiscard]] bool is_in_order(const Finish& finish) const {
    if (finish.reason == FinishReason::kAbort) return finish.error.ok() || has_reason_to_wait();
    return finish.reason == FinishReason::kLength ||
           finish.error.code() == StatusCode::kResourceExhausted;
  }
};

// Requests one token from the engine and answers as ServerHealth::check_by_generating() describes.
void health_generate(Engine& engine, const Post& post, const PostAfter& post_after,
                     double limit_seconds, std::shared_ptr<Exchange> exchange,
                     std::function<HttpResponse()> health) {
  Request request;
  request.id = "#health#" + exchange->request().id;  // clients' ids cannot contain '#'
  request.prompt = {0};
  request.stop.max_new_tokens = 1;
  request.stop.ignore_eos = true;
  request.sampling.temperature = 0;
  const std::string id = request.id;
  const auto probe = std::make_shared<Probe>(
      Probe{engine, std::move(health), std::move(exchange), engine.stats().steps});
  probe->exchange->on_gone = [&engine, id, weak = std::weak_ptr(probe)] {
    if (const auto gone = weak.lock()) gone->exchange.reset();
    engine.cancel(id);
  };
  const Status status = engine.submit(std::move(request), [post, probe](const RequestEvent& event) {
    if (!event.finish) return;
    post([probe, finish = *event.finish] {
      probe->answer(probe->is_in_order(finish), "No token was drawn.");
    });
  });
  if (!status.ok()) {
    probe->answer(status.code() == StatusCode::kResourceExhausted, status.message());
    return;
  }
  post_after(limit_seconds, [&engine, id, limit_seconds, weak = std::weak_ptr(probe)] {
    const auto late = weak.lock();
    if (late == nullptr || late->exchange == nullptr) return;
    engine.cancel(id);
    late->answer(late->has_reason_to_wait(),
                 fmt::format("No token was drawn within {} s.", limit_seconds));
  });
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
  return json_response({{"status", status},
                        {"running", stats.num_running},
                        {"waiting", stats.num_waiting},
                        {"device", model.device},
                        {"device_reason", model.device_reason}});
}

HttpResponse ServerHealth::readiness(bool strict) const {
  HttpResponse response = health();
  if (response.status != 200) return response;
  if (leaving_) return refusal({{"status", "draining"}});
  const Engine& engine = *engine_.load();
  const EngineStats stats = engine.stats();
  if (stats.paused) return refusal({{"status", "paused"}});
  if (strict && stats.num_waiting >= engine.options().max_queued_requests) {
    return refusal({{"status", "overloaded"}, {"waiting", stats.num_waiting}});
  }
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
