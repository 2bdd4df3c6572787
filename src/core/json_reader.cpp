// SPDX-License-Identifier: Apache-2.0
#include "core/json_reader.h"

#include <cerrno>
#include <cmath>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/file_kind.h"
#include "core/file_presence.h"

namespace heddle {
namespace {

// The text of the element as in the file, shortened, for messages.
std::string shown(simdjson::dom::element element) {
  constexpr size_t kMaxBytes = 60;
  simdjson::dom::object object;
  if (element.get(object) == simdjson::SUCCESS) {
    std::string_view name;
    const bool special =
        object.size() == 1 && object.at_key(kSpecialFloatKey).get(name) == simdjson::SUCCESS;
    return special ? std::string(name) : "an object";
  }
  std::string text = simdjson::minify(element);
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string join(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

Result<uint64_t> checked_size(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(path));
  if (!exists) return cannot_open(path, ENOENT);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return data_loss(
        fmt::format("{} is not a plain file; put the model's file in its place", path.string()));
  }
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) return data_loss(fmt::format("{}: {}", path.string(), error.message()));
  if (size > kMaxJsonFileBytes) {
    return data_loss(fmt::format(
        "{} has {} bytes, more than the {} that are read; put the model's file in its place",
        path.string(), size, kMaxJsonFileBytes));
  }
  return size;
}

// Reads exactly `size` bytes from the beginning of a file.
Status read_into(const std::filesystem::path& path, char* data, uint64_t size) {
  std::ifstream file(path, std::ios::binary);
  if (!file.read(data, static_cast<std::streamsize>(size))) {
    return data_loss(
        fmt::format("{} cannot be read, or became shorter than its {} bytes", path.string(), size));
  }
  return ok_status();
}

}  // namespace

Status JsonValue::wrong(std::string_view expected) const {
  return data_loss(fmt::format("{} is {}; expected {}", path_.empty() ? "the document" : path_,
                               shown(element_), expected));
}

Result<std::string_view> JsonValue::as_string() const {
  std::string_view value;
  if (element_.get(value) != simdjson::SUCCESS) return wrong("a string");
  return value;
}

Result<bool> JsonValue::as_bool() const {
  bool value = false;
  if (element_.get(value) == simdjson::SUCCESS) return value;
  int64_t number = 0;
  if (element_.get(number) == simdjson::SUCCESS && (number == 0 || number == 1)) return number == 1;
  return wrong("true or false");
}

Result<int64_t> JsonValue::as_integer() const {
  constexpr double kExactLimit = 9007199254740992.0;  // 2^53: up to here doubles represent every
                                                      // integer
  int64_t value = 0;
  if (element_.get(value) == simdjson::SUCCESS) return value;
  double real = 0;
  if (element_.get(real) == simdjson::SUCCESS && std::abs(real) <= kExactLimit &&
      std::trunc(real) == real) {
    return static_cast<int64_t>(real);
  }
  return wrong("a 64-bit integer");
}

Result<simdjson::dom::object> JsonValue::as_object() const {
  simdjson::dom::object value;
  if (element_.get(value) != simdjson::SUCCESS) return wrong("an object");
  return value;
}

Result<simdjson::dom::array> JsonValue::as_array() const {
  simdjson::dom::array value;
  if (element_.get(value) != simdjson::SUCCESS) return wrong("an array");
  return value;
}

Result<std::vector<JsonValue>> JsonValue::items() const {
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::array array, as_array());
  std::vector<JsonValue> values;
  for (const simdjson::dom::element element : array) {
    values.emplace_back(element, fmt::format("{}[{}]", path_, values.size()));
  }
  return values;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  simdjson::dom::object object;
  if (element_.get(object) != simdjson::SUCCESS) return std::nullopt;
  std::optional<simdjson::dom::element> last;
  for (const auto [name, member] : object) {
    if (name == key) last = member;
  }
  if (!last || last->is_null()) return std::nullopt;
  return JsonValue(*last, join(path_, key));
}

Result<JsonValue> JsonValue::require(std::string_view key) const {
  if (!is_object()) return wrong("an object");
  std::optional<JsonValue> member = find(key);
  if (!member) {
    return data_loss(fmt::format("{} is missing; the file may be truncated or of another kind",
                                 join(path_, key)));
  }
  return *std::move(member);
}

Result<std::string> JsonValue::string_or(std::string_view key, std::string_view fallback) const {
  const std::optional<JsonValue> member = find(key);
  if (!member) return std::string(fallback);
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view value, member->as_string());
  return std::string(value);
}

Result<bool> JsonValue::bool_or(std::string_view key, bool fallback) const {
  const std::optional<JsonValue> member = find(key);
  return member ? member->as_bool() : Result<bool>(fallback);
}

Result<std::string> JsonValue::require_string(std::string_view key) const {
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue member, require(key));
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view value, member.as_string());
  return std::string(value);
}

Result<JsonDocument> JsonDocument::parse_padded(simdjson::padded_string text) {
  JsonDocument document;
  document.text_ = std::move(text);
  document.parser_ = std::make_shared<simdjson::dom::parser>();
  const auto parse = [&document] {
    return document.parser_->parse(document.text_).get(document.root_);
  };
  if (parse() == simdjson::SUCCESS) return document;
  HEDDLE_ASSIGN_OR_RETURN(const std::string strict, strict_json(std::string_view(document.text_)));
  document.text_ = simdjson::padded_string(strict);
  const simdjson::error_code error = parse();
  if (error == simdjson::SUCCESS) return document;
  return data_loss(fmt::format("not valid JSON: {}", simdjson::error_message(error)));
}

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  return parse_padded(simdjson::padded_string(text));
}

Result<JsonDocument> JsonDocument::load(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const uint64_t size, checked_size(path));
  simdjson::padded_string text(size);
  if (text.data() == nullptr) {
    return resource_exhausted(fmt::format("no memory for the {} bytes of {}", size, path.string()));
  }
  HEDDLE_RETURN_IF_ERROR(read_into(path, text.data(), size));
  return parse_padded(std::move(text));
}

Result<std::string> read_whole_file(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(const uint64_t size, checked_size(path));
  std::string text(size, '\0');
  HEDDLE_RETURN_IF_ERROR(read_into(path, text.data(), size));
  if (const std::string pointer = describe_lfs_pointer(text); !pointer.empty()) {
    return data_loss(fmt::format("{}: {}", path.string(), pointer));
  }
  return text;
}

}  // namespace heddle
