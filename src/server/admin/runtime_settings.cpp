// SPDX-License-Identifier: Apache-2.0
#include "server/admin/runtime_settings.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/field_reader.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kLevels = {
    std::pair{LogLevel::kDebug, "debug"}, std::pair{LogLevel::kInfo, "info"},
    std::pair{LogLevel::kWarning, "warning"}, std::pair{LogLevel::kError, "error"}};

// The name of the current log level.
const char* level_now() {
  for (const auto& [level, name] : kLevels) {
    if (logs(level)) return name;
  }
  return "off";
}

void change_level(FieldReader& fields) {
  const auto wanted = fields.string(Body::kServerArgs["log_level"]);
  if (!wanted || fields.error()) return;
  for (const auto& [level, name] : kLevels) {
    if (*wanted != name) continue;
    set_log_level(level);
    return;
  }
  fields.fail(invalid_value(fields.name_of("log_level"),
                            fmt::format("`{}` is \"{}\"; use debug, info, warning or error.",
                                        fields.name_of("log_level"), printable(*wanted, 40))));
}

void read_request_log_settings(FieldReader& fields, RequestLogSettings& settings) {
  settings.on = fields.boolean(Body::kLogging["log_requests"]).value_or(settings.on);
  settings.level = static_cast<int32_t>(
      fields.integer(Body::kLogging["log_requests_level"]).value_or(settings.level));
  const auto wanted = fields.string(Body::kLogging["log_requests_format"]);
  if (!wanted) return;
  const auto format = parse_request_log_format(*wanted);
  if (format.ok()) {
    settings.format = *format;
  } else {
    fields.fail(invalid_value(
        "log_requests_format",
        fmt::format("`log_requests_format` is \"{}\"; use text or json.", printable(*wanted, 40))));
  }
}

}  // namespace

std::variant<Json, ApiError> configure_logging(std::string_view body, RequestLog& request_log) {
  RequestLogSettings requests = request_log.settings();
  if (!body.empty()) {
    Json object;
    if (auto error = parse_json_object(body, object)) return *error;
    FieldReader fields(object);
    refuse_fields(fields, {"log_requests_target", "dump_requests_folder", "dump_requests_threshold",
                           "crash_dump_folder"});
    read_request_log_settings(fields, requests);
    if (!fields.error()) change_level(fields);
    if (fields.error()) return *fields.error();
    request_log.change(requests);
  }
  return Json{{"log_level", level_now()},
              {"log_requests", requests.on},
              {"log_requests_level", requests.level},
              {"log_requests_format", to_string(requests.format)}};
}

std::variant<Json, ApiError> set_internal_state(std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const Json* const settings = fields.object(Body::kInternalState["server_args"]);
  if (fields.error()) return *fields.error();
  if (settings == nullptr) return missing_parameter("server_args");
  for (const auto& [name, value] : settings->items()) {
    if (name != "log_level") {
      return unsupported_parameter(
          "server_args." + printable(name, 100),
          "only log_level changes while the server runs; start it anew with the "
          "option");
    }
  }
  FieldReader inner(*settings, "server_args.");
  change_level(inner);
  if (inner.error()) return *inner.error();
  return Json{{"updated", true}, {"server_args", {{"log_level", level_now()}}}};
}

std::variant<Json, ApiError> slow_down(std::string_view body, Engine& engine) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const double seconds = fields.number(Body::kSlowDown["forward_sleep_time"]).value_or(0);
  if (fields.error()) return *fields.error();
  engine.set_step_delay(seconds);
  return Json{{"forward_sleep_time", seconds}};
}

}  // namespace heddle::server
