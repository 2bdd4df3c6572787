// SPDX-License-Identifier: Apache-2.0
// The reader of every JSON file in a model folder: what Python's json module reads, these files may
// have, because it and transformers wrote them.
//
// Python's json knows more than the standard: integers of any size, numbers beyond a double
// (1e400), NaN, Infinity, -Infinity, keys given twice (the last one counts) and escapes of half a
// surrogate pair. Large files are parsed by simdjson, which refuses all but the double keys. A text
// that it refuses is rewritten once by strict_json(), which is also what names the line of a syntax
// error. Small files of which a JSON value is kept (checkpoint/config_reader.h) take strict_json()
// directly.
//
// Values are checked when they are read: a wrong type or a missing key is a Status that names path
// and value, `model.merges[17] is 5; expected a string`. A value that is never read is never wrong.
//
// Kept out of other headers of core because simdjson is slow to compile.
// Threading: thread-compatible.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <simdjson.h>

#include <heddle/status.h>

#include "core/json_syntax.h"

namespace heddle {

// A file above this size is none of a model's JSON files: the largest known has 34 MB.
inline constexpr uint64_t kMaxJsonFileBytes = uint64_t{512} << 20;

// One value and its path. A view: the document must outlive it.
class JsonValue {
 public:
  JsonValue(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] bool is_object() const { return element_.is_object(); }

  [[nodiscard]] bool is_array() const { return element_.is_array(); }

  [[nodiscard]] bool is_string() const { return element_.is_string(); }

  [[nodiscard]] Result<std::string_view> as_string() const;
  [[nodiscard]] Result<bool> as_bool() const;        // 0 and 1, too, as in Python
  [[nodiscard]] Result<int64_t> as_integer() const;  // 4096.0 is what some writers make of 4096

  // For loops over many members: iterate and use the raw elements. An object may have a key twice;
  // the last one counts.
  [[nodiscard]] Result<simdjson::dom::object> as_object() const;
  [[nodiscard]] Result<simdjson::dom::array> as_array() const;
  [[nodiscard]] Result<std::vector<JsonValue>> items() const;  // the elements of an array

  // nullopt when the key is missing, its value is null, or this is no object. Cost: O(members).
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
  [[nodiscard]] Result<JsonValue> require(std::string_view key) const;

  // The member's value, or the default without the member.
  [[nodiscard]] Result<std::string> string_or(std::string_view key,
                                              std::string_view fallback) const;
  [[nodiscard]] Result<bool> bool_or(std::string_view key, bool fallback) const;
  [[nodiscard]] Result<std::string> require_string(std::string_view key) const;

  // "PATH is VALUE; expected ...".
  [[nodiscard]] Status wrong(std::string_view expected) const;

 private:
  simdjson::dom::element element_;
  std::string path_;  // empty for the document
};

// A parsed document and the memory under it.
class JsonDocument {
 public:
  // Error: as strict_json().
  static Result<JsonDocument> parse(std::string_view text);

  // Like parse(), for a file. Error: also kNotFound; kDataLoss when it is no regular file or too
  // large; those of file_exists() (core/file_presence.h). Errors of the content do not begin with
  // the file's name, those of a file that cannot be read contain it.
  static Result<JsonDocument> load(const std::filesystem::path& path);

  [[nodiscard]] JsonValue root() const { return {root_, ""}; }

 private:
  static Result<JsonDocument> parse_padded(simdjson::padded_string text);

  simdjson::padded_string text_;
  // Shared only for its deleter, which is compiled here: a folder that does not link simdjson may
  // see another layout of the parser, depending on the library's options.
  std::shared_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
};

// A whole file. Error: kNotFound, kDataLoss when it is no regular file or too large, or as
// file_exists().
[[nodiscard]] Result<std::string> read_whole_file(const std::filesystem::path& path);

}  // namespace heddle
