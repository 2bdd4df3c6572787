// SPDX-License-Identifier: Apache-2.0
#include "server/health_generate.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// A question under way, on the I/O thread.
struct Probe {
  std::shared_ptr<Exchange> exchange;  // null once it is answered
  HttpResponse healthy;

  // With `healthy`, or why not.
  void answer(std::string_view failure) {
    if (exchange == nullptr) return;
    HttpResponse response = std::move(healthy);
    if (!failure.empty()) {
      response = {.status = 503,
                  .headers = {{"Retry-After", "5"}},
                  .body = dump_json(Json{{"status", "stuck"}, {"message", failure}})};
    }
    exchange->on_gone = nullptr;
    std::exchange(exchange, nullptr)->respond(std::move(response));
  }
};

}  // namespace

void health_generate(Engine& engine, const Post& post, const PostAfter& post_after,
                     double limit_seconds, std::shared_ptr<Exchange> exchange,
                     HttpResponse healthy) {
  Request request;
  request.id = "#health#" + exchange->request().id;  // '#' is not a character of clients' ids
  request.prompt = {0};
  request.stop.max_new_tokens = 1;
  request.stop.ignore_eos = true;
  request.sampling.temperature = 0;
  const std::string id = request.id;
  const auto probe = std::make_shared<Probe>(std::move(exchange), std::move(healthy));
  probe->exchange->on_gone = [&engine, id, weak = std::weak_ptr(probe)] {
    if (const auto gone = weak.lock()) gone->exchange.reset();
    engine.cancel(id);
  };
  const Status status = engine.submit(std::move(request), [post, probe](const RequestEvent& event) {
    if (!event.finish) return;
    const bool drawn = event.finish->reason == FinishReason::kLength;
    post([probe, failure = drawn ? std::string() : "No token was drawn."] {
      probe->answer(failure);
    });
  });
  if (!status.ok()) {
    probe->answer(status.message());
    return;
  }
  post_after(limit_seconds, [&engine, id, limit_seconds, weak = std::weak_ptr(probe)] {
    const auto late = weak.lock();
    if (late == nullptr || late->exchange == nullptr) return;
    engine.cancel(id);
    late->answer(fmt::format("No token was drawn within {} s.", limit_seconds));
  });
}

}  // namespace heddle::server
