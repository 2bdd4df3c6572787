// SPDX-License-Identifier: Apache-2.0
#include "server/http/json_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxQuotedError = 200;

// Fields of a request in which numbers of any size are kept as written: the model's calls in the
// history, and schemas. `body` is the request in a line of a batch.
constexpr std::string_view kExactFields[] = {"messages",      "input",
                                             "body",          "tools",
                                             "functions",     "text",
                                             "format",        "response_format",
                                             "json_schema",   "output_config",
                                             "output_format", "structural_tag",
                                             "guided_json",   "structured_outputs"};

ApiError invalid_json(std::string message) {
  return {.code = "invalid_json", .message = std::move(message)};
}

// Estimated bytes of values in std::vector, std::string and malloc(). A growing vector has its old
// and its new buffer, a string up to twice the size that it needs.
constexpr int64_t kItemBytes = 2 * sizeof(Json);
constexpr int64_t kStringBytes = 48;
// Bytes of an object's entry without its key.
constexpr int64_t kEntryBytes = 2 * sizeof(Json::object_t::value_type) - kStringBytes;
constexpr int64_t kContainerBytes = 64;
constexpr int64_t kShortString = 15;       // characters kept inside std::string itself
constexpr int64_t kAllocationBytes = 17;   // bytes of a longer string besides its characters
constexpr int64_t kWideNumberBytes = 100;  // bytes of a wide number besides its digits

// Numbers with this many digits before the point, or in the exponent, may be wide
// (core/exact_json.h).
constexpr size_t kWideDigits = 19;
constexpr size_t kWideExponent = 3;

// Checks, before any value is built, how deep a text nests, how large its objects are and how much
// memory its values would need. Malformed text passes, because the parser reports its error.
class LimitCheck {
 public:
  explicit LimitCheck(std::string_view text)
      : text_(text), max_bytes_(kJsonGrowth * std::ssize(text) + kFreeJsonBytes) {}

  // Returns the end of an error sentence whose subject is the text; empty: no limit is exceeded.
  std::string run() {
    for (size_t i = 0; i < text_.size(); ++i) {
      switch (text_[i]) {
        case '"':
          i = skip_string(i);
          break;
        case '{':
        case '[':
          if (++depth_ > kMaxJsonDepth) {
            return fmt::format("nests deeper than {} levels", kMaxJsonDepth);
          }
          num_keys_[depth_] = 0;
          is_list_[depth_] = text_[i] == '[';
          bytes_ += kContainerBytes + (is_list_[depth_] ? kItemBytes : 0);
          break;
        case '}':
        case ']':
          if (depth_ > 0) --depth_;
          break;
        case ':':
          if (++num_keys_[depth_] > kMaxJsonObjectKeys) {
            return fmt::format("has an object with more than {} keys", kMaxJsonObjectKeys);
          }
          bytes_ += kEntryBytes;
          break;
        case ',':
          if (is_list_[depth_]) bytes_ += kItemBytes;
          break;
        default:
          if (is_digit(text_[i])) i = skip_number(i);
          break;
      }
      if (bytes_ > max_bytes_) {
        return fmt::format(
            "has so many values that they would take more than {} MiB of memory for {} bytes of "
            "text; send less at once",
            max_bytes_ >> 20, text_.size());
      }
    }
    return {};
  }

 private:
  // Counts a string and returns the index of its closing quote; `begin` is that of the opening one.
  size_t skip_string(size_t begin) {
    size_t i = begin + 1;
    while (i < text_.size() && text_[i] != '"') i += text_[i] == '\\' ? 2 : 1;
    const auto length = static_cast<int64_t>(i - begin - 1);
    bytes_ += kStringBytes + (length > kShortString ? 2 * length + kAllocationBytes : 0);
    return i;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // Counts a number and returns the index of its last digit; `begin` is that of the first.
  size_t skip_number(size_t begin) {
    const auto digits_end = [this](size_t i) {
      while (i < text_.size() && is_digit(text_[i])) ++i;
      return i;
    };
    size_t end = digits_end(begin);
    bool is_wide = end - begin >= kWideDigits;
    if (end < text_.size() && text_[end] == '.') end = digits_end(end + 1);
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      ++end;
      if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
      const size_t exponent = end;
      end = digits_end(exponent);
      is_wide = is_wide || end - exponent >= kWideExponent;
    }
    if (is_wide) bytes_ += kWideNumberBytes + static_cast<int64_t>(end - begin);
    return end - 1;
  }

  const std::string_view text_;
  const int64_t max_bytes_;
  std::array<int, kMaxJsonDepth + 1> num_keys_{};
  std::array<bool, kMaxJsonDepth + 1> is_list_{};
  size_t depth_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

std::optional<ApiError> parse_json_object(std::string_view text, Json& object,
                                          std::string_view what, WideNumbers wide) {
  if (const std::string excess = LimitCheck(text).run(); !excess.empty()) {
    return invalid_json(fmt::format("{} {}.", what, excess));
  }
  // The library would take a NUL byte for the end of the text and ignore what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return invalid_json(fmt::format("{} is not valid JSON: byte {} is NUL.", what, nul));
  }
  auto parsed = parse_exact_json(text, wide == WideNumbers::kEverywhere
                                           ? std::span<const std::string_view>()
                                           : std::span<const std::string_view>(kExactFields));
  if (!parsed.ok()) {
    // The library's message: "[json.exception.parse_error.101] parse error at line 1, column 2:
    // ..."
    std::string_view reason = parsed.status().message();
    const size_t bracket = reason.find("] ");
    if (bracket != std::string_view::npos) reason.remove_prefix(bracket + 2);
    return invalid_json(
        fmt::format("{} is not valid JSON: {}.", what, reason.substr(0, kMaxQuotedError)));
  }
  object = std::move(parsed).value();
  if (!object.is_object()) {
    return ApiError{
        .code = "invalid_type",
        .message = fmt::format("{} must be a JSON object, not {}.", what, object.type_name())};
  }
  return std::nullopt;
}

const nlohmann::ordered_json* find_value(const nlohmann::ordered_json& object,
                                         std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string dump_json(const Json& value) { return dump_exact_json(value); }

HttpResponse json_response(const Json& body) { return {.headers = {}, .body = dump_json(body)}; }

void append_typed_event(const Json& event, std::string& out) {
  out += fmt::format("event: {}\n", event["type"].get_ref<const std::string&>());
  out += sse_event(event);
}

std::string sse_event(const Json& value) {
  std::string event = "data: ";
  event += dump_json(value);
  event += "\n\n";
  return event;
}

}  // namespace heddle::server
