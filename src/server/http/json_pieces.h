// SPDX-License-Identifier: Apache-2.0
// JsonPieces: JSON text made of small values, long strings and long lists, written one piece at a
// time. No tree of values is built: an answer of a hundred megabytes takes the memory of the data
// that it shows and of one piece, and the writing thread is free again after each piece.
//
//   JsonPieces pieces;
//   pieces.begin_object().key("text").text(text).key("ids").list(ids.size(),
//   write_id).end_object(); while (pieces.next(out, 64 << 10)) send(out);
//
// The text equals what nlohmann::ordered_json::dump() writes for the same values, except for the
// last digit of some numbers. Long strings and lists are views: their data outlives this object and
// does not change.
//
// Threading: thread-compatible.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace heddle::server {

class JsonPieces {
 public:
  // Appends the JSON text of one list entry. Its cost and length must be bounded, because an entry
  // is not divided.
  using WriteItem = std::function<void(size_t index, std::string& out)>;

  JsonPieces& begin_object() { return open('{'); }

  JsonPieces& end_object() { return close('}'); }

  JsonPieces& begin_list() { return open('['); }

  JsonPieces& end_list() { return close(']'); }

  JsonPieces& key(std::string_view name);  // `name` has no characters that need escapes
  JsonPieces& value(const nlohmann::ordered_json& small);

  // Appends a text, an integer, true, false or null without a tree of values, which would cost more
  // than writing it: events have many of these.
  template <typename Small>
    requires(!std::same_as<Small, nlohmann::ordered_json> &&
             (std::integral<Small> || std::is_null_pointer_v<Small> ||
              std::is_convertible_v<const Small&, std::string_view>))
  JsonPieces& value(const Small& small) {
    if constexpr (std::is_null_pointer_v<Small>) {
      return word("null");
    } else if constexpr (std::same_as<Small, bool>) {
      return word(small ? "true" : "false");
    } else if constexpr (std::integral<Small>) {
      return word(std::to_string(small));
    } else {
      return short_text(small);
    }
  }

  JsonPieces& text(std::string_view text);  // appends a long string, of which only a view is kept
  JsonPieces& list(size_t count, WriteItem write_item);

  JsonPieces& integers(std::span<const int32_t> list);

  // Appends a value whose JSON text exists already, between `before` and `after`.
  JsonPieces& written(char before, std::string_view json, char after);

  // Appends characters outside the JSON text, such as the "data: " of an event stream.
  JsonPieces& around(std::string_view characters);

  // Appends the next piece to `out`: about `max_bytes`, counted before characters are escaped, and
  // at least one entry of a list. Returns false when nothing is left.
  [[nodiscard]] bool next(std::string& out, size_t max_bytes);

  [[nodiscard]] bool done() const { return part_index_ == parts_.size(); }

  // Appends all remaining text at once.
  void write_all(std::string& out);

 private:
  struct Text {
    std::string_view rest;
  };

  struct List {
    size_t count;
    WriteItem write_item;
    size_t index = 0;
  };

  struct Written {
    std::string_view rest;
  };

  using Part = std::variant<std::string, Text, List, Written>;

  JsonPieces& word(std::string_view json);
  JsonPieces& short_text(std::string_view text);
  JsonPieces& open(char bracket);
  JsonPieces& close(char bracket);
  std::string& small();  // the buffer at the end of parts_ to which small text is appended
  std::string& next_value();

  // Returns true when the part is complete.
  static bool write(Part& part, std::string& out, size_t max_bytes);

  std::vector<Part> parts_;
  size_t part_index_ = 0;  // index of the first part that is not complete
  bool needs_comma_ = false;
};

// Appends `text` as the inside of a JSON string, without the quotes. Bytes that are not UTF-8
// become U+FFFD.
void append_json_characters(std::string_view text, std::string& out);

// Appends `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string_view text, std::string& out);

// Appends a number, which must be finite (checked).
void append_json_number(double number, std::string& out);

}  // namespace heddle::server
