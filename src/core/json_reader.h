// SPDX-License-Identifier: Apache-2.0
// The reader of all JSON files in a model folder. It accepts what Python's json module reads,
// because that module and transformers wrote these files.
//
// Python's json accepts more than the standard: integers of any size, numbers beyond a double
// (1e400), NaN, Infinity, -Infinity, keys given twice (the last one counts) and escapes of half a
// surrogate pair. Large files are parsed by simdjson, which rejects all of these except repeated
// keys. A text that it rejects is rewritten once by strict_json(), which also reports the line of a
// syntax error. Small files whose values are kept (checkpoint/config_reader.h) use strict_json()
// directly.
//
// Values are checked when they are read: a wrong type or a missing key is a Status with path and
// value, `model.merges[17] is 5; expected a string`. Values that are never read are never checked.
//
// Other headers of core do not include this one, because simdjson is slow to compile.
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

// Largest size of a JSON file of a model; the largest known one has 34 MB.
inline constexpr uint64_t kMaxJsonFileBytes = uint64_t{512} << 20;

// One value and its path in the document. It is a view: the document must outlive it.
class JsonValue {
 public:
  JsonValue(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] bool is_object() const { return element_.is_object(); }

  [[nodiscard]] bool is_array() const { return element_.is_array(); }

  [[nodiscard]] bool is_string() const { return element_.is_string(); }

  [[nodiscard]] Result<std::string_view> as_string() const;
  [[nodiscard]] Result<bool> as_bool() const;        // also accepts 0 and 1, as Python does
  [[nodiscard]] Result<int64_t> as_integer() const;  // also accepts 4096.0, which some writers
                                                     // produce for 4096

  // For loops over many members: iterate over the raw elements. An object may contain a key twice;
  // the last one counts.
  [[nodiscard]] Result<simdjson::dom::object> as_object() const;
  [[nodiscard]] Result<simdjson::dom::array> as_array() const;
  [[nodiscard]] Result<std::vector<JsonValue>> items() const;  // the elements of an array

  // nullopt if the key is missing, its value is null, or this is not an object. Cost: O(members).
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
  [[nodiscard]] Result<JsonValue> require(std::string_view key) const;

  // The member's value, or `fallback` if there is no such member.
  [[nodiscard]] Result<std::string> string_or(std::string_view key,
                                              std::string_view fallback) const;
  [[nodiscard]] Result<bool> bool_or(std::string_view key, bool fallback) const;
  [[nodiscard]] Result<std::string> require_string(std::string_view key) const;

  // The error "PATH is VALUE; expected ...", with `expected` at the end.
  [[nodiscard]] Status wrong(std::string_view expected) const;

 private:
  simdjson::dom::element element_;
  std::string path_;  // path of the value; empty for the whole document
};

// A parsed document with the memory that its values refer to.
class JsonDocument {
 public:
  // Error: as strict_json().
  static Result<JsonDocument> parse(std::string_view text);

  // parse() for a file. Error: also kNotFound; kDataLoss if it is not a regular file or too large;
  // those of file_exists() (core/file_presence.h). Errors of the content do not begin with the
  // file's name; errors of a file that cannot be read contain it.
  static Result<JsonDocument> load(const std::filesystem::path& path);

  [[nodiscard]] JsonValue root() const { return {root_, ""}; }

 private:
  static Result<JsonDocument> parse_padded(simdjson::padded_string text);

  simdjson::padded_string text_;
  // Shared only for its deleter, which is compiled in core: a folder that does not link simdjson
  // may see another layout of the parser, depending on the library's options.
  std::shared_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
};

// The contents of a file. Error: kNotFound; kDataLoss if it is not a regular file or too large; or
// as file_exists().
[[nodiscard]] Result<std::string> read_whole_file(const std::filesystem::path& path);

}  // namespace heddle
