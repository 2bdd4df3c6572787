// SPDX-License-Identifier: Apache-2.0
#include "server/json_text.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/json_builder.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxQuotedError = 200;

ApiError invalid_json(std::string message) {
  return {.code = "invalid_json", .message = std::move(message)};
}

// Depth, number of values and size of objects, seen before anything is built. Malformed text
// passes: the parser says why.
std::optional<ApiError> check_limits(std::string_view text, std::string_view what) {
  std::array<int, kMaxJsonDepth + 1> num_keys{};
  size_t depth = 0;
  int64_t num_values = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        break;
      case '{':
      case '[':
        if (++depth > kMaxJsonDepth) {
          return invalid_json(fmt::format("{} nests deeper than {} levels.", what, kMaxJsonDepth));
        }
        num_keys[depth] = 0;
        ++num_values;
        break;
      case '}':
      case ']':
        if (depth > 0) --depth;
        break;
      case ':':
        if (++num_keys[depth] > kMaxJsonObjectKeys) {
          return invalid_json(
              fmt::format("{} has an object with more than {} keys.", what, kMaxJsonObjectKeys));
        }
        break;
      case ',':
        ++num_values;
        break;
      default:
        break;
    }
  }
  if (num_values > kMaxJsonValues) {
    return invalid_json(
        fmt::format("{} has more than {} values; send less at once.", what, kMaxJsonValues));
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> parse_json_object(std::string_view text, Json& object,
                                          std::string_view what) {
  if (auto error = check_limits(text, what)) return error;
  JsonBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view reason = builder.error();
    const size_t bracket = reason.find("] ");
    if (bracket != std::string_view::npos) reason.remove_prefix(bracket + 2);
    return invalid_json(
        fmt::format("{} is not valid JSON: {}.", what, reason.substr(0, kMaxQuotedError)));
  }
  object = builder.take();
  if (!object.is_object()) {
    return ApiError{
        .code = "invalid_type",
        .message = fmt::format("{} must be a JSON object, not {}.", what, object.type_name())};
  }
  return std::nullopt;
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sse_event(const Json& value) {
  std::string event = "data: ";
  event += dump_json(value);
  event += "\n\n";
  return event;
}

}  // namespace heddle::server
