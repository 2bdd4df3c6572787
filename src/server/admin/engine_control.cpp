// SPDX-License-Identifier: Apache-2.0
#include "server/admin/engine_control.h"

#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/field_reader.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPlainText = "text/plain; charset=utf-8";

std::optional<PauseMode> parse_pause_mode(std::string_view name) {
  if (name == "abort") return PauseMode::kAbort;
  if (name == "retract") return PauseMode::kRetract;
  if (name == "in_place") return PauseMode::kInPlace;
  return std::nullopt;
}

// A callback that answers with `message`, or with the error, once the engine is done.
std::function<void(Status)> answer_later(const Post& post, std::shared_ptr<Exchange> exchange,
                                         std::string message) {
  return [post, exchange = std::move(exchange),
          message = std::move(message)](const Status& status) mutable {
    post([exchange = std::move(exchange), message = std::move(message), status] {
      exchange->respond(status.ok()
                            ? json_response({{"message", message}, {"status", "ok"}})
                            : error_response(error_from_status(status, exchange->request().id),
                                             exchange->request()));
    });
  };
}

}  // namespace

void flush_cache(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange) {
  const std::string text = exchange->request().query_value("timeout").value_or("0");
  double timeout_seconds = 0;
  const auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), timeout_seconds);
  if (failure != std::errc() || end != text.data() + text.size() || !(timeout_seconds >= 0)) {
    exchange->respond(error_response(
        invalid_value("timeout", fmt::format("`timeout` is \"{}\"; it must be seconds, 0 or more.",
                                             printable(text, 40))),
        exchange->request()));
    return;
  }
  engine.clear_cache(
      timeout_seconds, [post, exchange = std::move(exchange)](const Status& status) mutable {
        post([exchange = std::move(exchange), status] {
          if (status.ok()) {
            exchange->respond(
                {.content_type = kPlainText, .headers = {}, .body = "The cache is empty.\n"});
          } else if (status.code() == StatusCode::kDeadlineExceeded) {
            exchange->respond(error_response({.code = "conflict", .message = status.message()},
                                             exchange->request()));
          } else {
            exchange->respond(error_response(error_from_status(status, exchange->request().id),
                                             exchange->request()));
          }
        });
      });
}

std::variant<PauseMode, ApiError> read_pause_mode(std::string_view body) {
  Json object = Json::object();
  if (!body.empty()) {
    if (auto error = parse_json_object(body, object)) return *error;
  }
  FieldReader fields(object);
  const std::string name = fields.string_or_preset(Body::kPause["mode"]);
  if (fields.error()) return *fields.error();
  if (const auto mode = parse_pause_mode(name)) return *mode;
  return invalid_value("mode", fmt::format("`mode` is \"{}\"; use abort, retract or in_place.",
                                           printable(name, 40)));
}

std::variant<AbortOrder, ApiError> read_abort(std::string_view body) {
  Json object;
  if (const auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  AbortOrder order{.id = fields.string(Body::kAbort["rid"]).value_or(""),
                   .all = fields.flag(Body::kAbort["abort_all"])};
  if (order.id.empty() && !order.all) fields.fail(missing_parameter("rid"));
  if (fields.error()) return *fields.error();
  return order;
}

void pause_generation(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange) {
  const auto mode = read_pause_mode(exchange->request().body);
  if (const auto* const error = std::get_if<ApiError>(&mode)) {
    exchange->respond(error_response(*error, exchange->request()));
    return;
  }
  engine.pause(std::get<PauseMode>(mode),
               answer_later(post, std::move(exchange), "Generation is paused."));
}

void continue_generation(Engine& engine, const Post& post, std::shared_ptr<Exchange> exchange) {
  engine.resume(answer_later(post, std::move(exchange), "Generation goes on."));
}

}  // namespace heddle::server
