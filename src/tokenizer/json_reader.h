// SPDX-License-Identifier: Apache-2.0
// Checked access to a JSON document, for files with any content: every wrong type or missing key is
// a Status that names its path, "model.merges[17] is a number; expected a string".
//
// Kept out of the folder's other headers because simdjson is slow to compile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include <heddle/status.h>

namespace heddle::tokenizer {

// A file above this size is not a tokenizer: the largest known has 34 MB.
inline constexpr uint64_t kMaxFileBytes = uint64_t{512} << 20;

// One value and its path. A view: the parser must outlive it.
class JsonValue {
 public:
  JsonValue(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] bool is_object() const { return element_.is_object(); }

  [[nodiscard]] bool is_array() const { return element_.is_array(); }

  [[nodiscard]] bool is_string() const { return element_.is_string(); }

  [[nodiscard]] Result<std::string_view> as_string() const;
  [[nodiscard]] Result<bool> as_bool() const;
  [[nodiscard]] Result<int64_t> as_integer() const;

  // For loops over many members: iterate and use the raw elements.
  [[nodiscard]] Result<simdjson::dom::object> as_object() const;
  [[nodiscard]] Result<simdjson::dom::array> as_array() const;
  [[nodiscard]] Result<std::vector<JsonValue>> items() const;  // of an array

  // None when the key is missing or null; also when this is no object.
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
  [[nodiscard]] Result<JsonValue> require(std::string_view key) const;

  // The member's value, or the default without the member.
  [[nodiscard]] Result<std::string> string_or(std::string_view key,
                                              std::string_view fallback) const;
  [[nodiscard]] Result<bool> bool_or(std::string_view key, bool fallback) const;
  [[nodiscard]] Result<std::string> require_string(std::string_view key) const;

  [[nodiscard]] Status wrong(std::string_view expected) const;  // "PATH is a number; expected ..."

 private:
  simdjson::dom::element element_;
  std::string path_;  // empty for the document
};

// A parsed document and the memory under it.
class JsonDocument {
 public:
  // Error: kDataLoss with the parser's words; nesting is limited to 1024 levels.
  static Result<JsonDocument> parse(std::string_view text);
  static Result<JsonDocument> load(const std::filesystem::path& path);

  [[nodiscard]] JsonValue root() const { return {root_, ""}; }

 private:
  static Result<JsonDocument> parse_padded(simdjson::padded_string text);

  simdjson::padded_string text_;
  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
};

// A whole file. Error: kNotFound, or kDataLoss when it is no regular file or too large.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace heddle::tokenizer
