// SPDX-License-Identifier: Apache-2.0
#include "server/batch/batch_input.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/call/field_reader.h"
#include "server/http/caller.h"
#include "server/http/json_pieces.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kEndpoints = {"/v1/chat/completions", "/v1/completions",
                                                        "/v1/responses"};

std::variant<BatchLine, ApiError> read_line(std::string_view text, std::string_view endpoint) {
  Json object;
  if (auto error = parse_json_object(text, object, "The line")) return *error;
  FieldReader fields(object);
  BatchLine line{.custom_id = fields.string("custom_id").value_or(""), .body = {}};
  const std::string method = fields.string("method").value_or("POST");
  const std::string url = fields.string("url").value_or(std::string(endpoint));
  const Json* const body = fields.object("body");
  if (fields.error()) return *fields.error();
  if (line.custom_id.empty()) return missing_parameter("custom_id");
  if (line.custom_id.size() > kMaxCustomIdBytes) {
    return invalid_value("custom_id", fmt::format("`custom_id` has {} bytes; {} are allowed.",
                                                  line.custom_id.size(), kMaxCustomIdBytes));
  }
  if (method != "POST") return invalid_value("method", "`method` must be POST.");
  if (url != endpoint) {
    return invalid_value(
        "url", fmt::format("`url` is {}; the batch is for {}.", printable(url, 100), endpoint));
  }
  if (body == nullptr) return missing_parameter("body");
  for (const char* const name : {"stream", "background"}) {
    if (const auto field = body->find(name); field != body->end() && *field == true) {
      return invalid_value(fmt::format("body.{}", name),
                           fmt::format("`{}` must be false in a batch.", name));
    }
  }
  Json request = *body;
  request.erase("priority");  // the batch sets the priority
  line.body = dump_json(request);
  return line;
}

}  // namespace

bool is_batch_endpoint(std::string_view path) {
  return std::ranges::find(kEndpoints, path) != kEndpoints.end();
}

std::variant<std::vector<BatchLine>, std::vector<BatchError>> read_batch_input(
    std::string_view text, std::string_view endpoint) {
  std::vector<BatchLine> lines;
  std::vector<BatchError> errors;
  std::unordered_set<std::string> ids;
  for (int64_t number = 1; !text.empty() && errors.size() < kMaxBatchErrors; ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (lines.size() == kMaxBatchLines) {
      errors.push_back(
          {"too_many_requests",
           fmt::format("The file has more than {} requests; divide it.", kMaxBatchLines), "",
           number});
      break;
    }
    auto read = read_line(one, endpoint);
    if (auto* const error = std::get_if<ApiError>(&read)) {
      errors.push_back({error->code, error->message, error->param, number});
      continue;
    }
    BatchLine& line = std::get<BatchLine>(read);
    if (!ids.insert(line.custom_id).second) {
      errors.push_back(
          {"duplicate_custom_id",
           fmt::format("`custom_id` \"{}\" is there twice.", printable(line.custom_id, 100)),
           "custom_id", number});
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty() && errors.empty()) {
    errors.push_back({"empty_file", "The file has no requests.", "", 0});
  }
  if (!errors.empty()) return errors;
  return lines;
}

Json errors_json(const std::vector<BatchError>& errors) {
  Json data = Json::array();
  for (const BatchError& error : errors) {
    data.push_back({{"code", error.code},
                    {"message", error.message},
                    {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
                    {"line", error.line > 0 ? Json(error.line) : Json(nullptr)}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

std::string batch_output_line(const std::string& custom_id, const std::string& request_id,
                              int status, std::string_view body) {
  JsonPieces line;
  line.begin_object().key("id").value(new_request_id("batch_req_"));
  line.key("custom_id").text(custom_id).key("response").begin_object();
  line.key("status_code").value(status).key("request_id").value(request_id);
  // The body is JSON on one line already, enclosed in braces.
  line.key("body").written('{', body.substr(1, body.size() - 2), '}');
  line.end_object().key("error").value(nullptr).end_object().around("\n");
  std::string text;
  line.write_all(text);
  return text;
}

std::string batch_error_line(const std::string& custom_id, std::string_view code,
                             std::string_view message) {
  return dump_json(Json{{"id", new_request_id("batch_req_")},
                        {"custom_id", custom_id},
                        {"response", nullptr},
                        {"error", {{"code", code}, {"message", message}}}}) +
         "\n";
}

std::optional<WrittenLine> read_written_line(std::string_view text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return std::nullopt;
  const auto id = line.find("custom_id");
  if (id == line.end() || !id->is_string() || !line.contains("response")) return std::nullopt;
  WrittenLine written{.custom_id = id->get<std::string>(), .is_answered = true};
  if (const auto error = line.find("error"); error != line.end() && error->is_object()) {
    const Json code = error->value("code", Json());
    written.is_answered = code != kBatchCancelled && code != kBatchExpired && code != kBatchFailed;
  }
  return written;
}

}  // namespace heddle::server
