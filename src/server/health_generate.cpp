// SPDX-License-Identifier: Apache-2.0
#include "server/health_generate.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// A question under way, on the I/O thread.
struct Probe {
  const Engine& engine;
  std::function<HttpResponse()> health;
  std::shared_ptr<Exchange> exchange;  // null once it is answered
  int64_t steps_before;                // of the engine

  // Answers as /health does, or with `failure` where that is not the whole truth.
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

  // The engine is paused, or has computed something since the probe came.
  [[nodiscard]] bool has_reason_to_wait() const {
    const EngineStats stats = engine.stats();
    return stats.paused || stats.steps != steps_before;
  }

  // An abort without an error is a pause's, which may be over by now, or the shutdown's; one with
  // an error says that time ran out.
  [[nodiscard]] bool is_in_order(const Finish& finish) const {
    if (finish.reason == FinishReason::kAbort) return finish.error.ok() || has_reason_to_wait();
    return finish.reason == FinishReason::kLength ||
           finish.error.code() == StatusCode::kResourceExhausted;
  }
};

}  // namespace

void health_generate(Engine& engine, const Post& post, const PostAfter& post_after,
                     double limit_seconds, std::shared_ptr<Exchange> exchange,
                     std::function<HttpResponse()> health) {
  Request request;
  request.id = "#health#" + exchange->request().id;  // '#' is not a character of clients' ids
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

}  // namespace heddle::server
