// SPDX-License-Identifier: Apache-2.0
#include "server/api/native/session_fields.h"

#include <utility>

#include <fmt/format.h>

#include "server/call/body_fields.h"
#include "server/http/caller.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Reads an id that the client chose; "" if there is none.
std::string read_id(FieldReader& fields, const Field& name) {
  std::string id = fields.string(name).value_or("");
  if (!id.empty() && !is_request_id(id)) {
    fields.fail(invalid_value(
        fields.name_of(name),
        fmt::format("`{}` must be 1 to 128 letters, digits and \".\", \"_\", \":\" or \"-\".",
                    fields.name_of(name))));
  }
  return id;
}

}  // namespace

std::variant<Json, ApiError> open_session(std::string_view body, std::string holder, int64_t now,
                                          SessionStore& store) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const auto capacity = fields.integer(Body::kOpenSession["capacity_of_str_len"]);
  const int64_t timeout = fields.integer_or_preset(Body::kOpenSession["timeout"]);
  std::string id = read_id(fields, Body::kOpenSession["session_id"]);
  if (fields.error()) return *fields.error();
  if (!capacity) return missing_parameter("capacity_of_str_len");
  if (id.empty()) id = new_request_id("");
  if (auto error = store.open({.id = id,
                               .holder = std::move(holder),
                               .capacity_tokens = *capacity,
                               .timeout_seconds = timeout},
                              now)) {
    return *error;
  }
  return Json(id);
}

std::variant<Json, ApiError> close_session(std::string_view body, const std::string& holder,
                                           SessionStore& store) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const std::string id = read_id(fields, Body::kCloseSession["session_id"]);
  if (fields.error()) return *fields.error();
  if (id.empty()) return missing_parameter("session_id");
  if (!store.close(id, holder)) {
    return ApiError{.status = 404,
                    .code = "not_found",
                    .message = fmt::format("There is no session `{}`.", id),
                    .param = "session_id"};
  }
  return Json{{"session_id", id}, {"closed", true}};
}

std::optional<SessionParams> read_session_params(FieldReader& fields) {
  const Json* const object = fields.object(Body::kGenerate["session_params"]);
  if (object == nullptr) return std::nullopt;
  FieldReader inner(*object, "session_params.");
  SessionParams params;
  params.id = read_id(inner, Body::kSession["id"]);
  if (std::string rid = read_id(inner, Body::kSession["rid"]); !rid.empty())
    params.rid = std::move(rid);
  params.offset = inner.integer(Body::kSession["offset"]);
  if (params.offset == 0) params.offset.reset();  // SGLang's clients send 0 for "no offset"
  params.replace = inner.flag(Body::kSession["replace"]);
  params.drop_previous_output = inner.flag(Body::kSession["drop_previous_output"]);
  if (inner.error()) {
    fields.fail(*inner.error());
  } else if (params.id.empty()) {
    fields.fail(missing_parameter("session_params.id"));
  }
  return params;
}

}  // namespace heddle::server
