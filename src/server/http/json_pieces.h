// SPDX-License-Identifier: Apache-2.0
// JsonPieces: JSON text made of small values, long strings and long lists, written a piece at a
// time. No tree of values is built: an answer of a hundred megabytes takes the memory of what it
// shows and of one piece, and the thread that writes it is free again after each piece.
//
//   JsonPieces pieces;
//   pieces.begin_object().key("text").text(text).key("ids").list(ids.size(),
//   write_id).end_object(); while (pieces.next(out, 64 << 10)) send(out);
//
// The text is what nlohmann::ordered_json::dump() writes of the same values, but for the last digit
// of some numbers. Long strings and lists are views: what they show outlives this object and does
// not change.
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
  // Appends the JSON text of a list's entry. Cost and length are bounded, as an entry is not
  // divided.
  using WriteItem = std::function<void(size_t index, std::string& out)>;

  JsonPieces& begin_object() { return open('{'); }

  JsonPieces& end_object() { return close('}'); }

  JsonPieces& begin_list() { return open('['); }

  JsonPieces& end_list() { return close(']'); }

  JsonPieces& key(std::string_view name);  // without characters that need escapes
  JsonPieces& value(const nlohmann::ordered_json& small);

  // The same of a text, an integer, true, false or null without a tree of values, which would cost
  // more than to write it: events have many of these.
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

  JsonPieces& text(std::string_view text);  // a long string
  JsonPieces& list(size_t count, WriteItem write_item);

  JsonPieces& integers(std::span<const int32_t> list);

  // A value whose JSON text is there already, between `before` and `after`.
  JsonPieces& written(char before, std::string_view json, char after);

  // Characters around the JSON text, as an event stream has.
  JsonPieces& around(std::string_view characters);

  // Appends the next piece: about `max_bytes` before characters are escaped, and one entry of a
  // list at least. False when nothing is left.
  [[nodiscard]] bool next(std::string& out, size_t max_bytes);

  [[nodiscard]] bool done() const { return part_index_ == parts_.size(); }

  // Appends everything at once.
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
  std::string& small();  // where small text goes, at the end of parts_
  std::string& next_value();

  static bool write(Part& part, std::string& out, size_t max_bytes);  // true: it is complete

  std::vector<Part> parts_;
  size_t part_index_ = 0;  // the first that is not complete
  bool needs_comma_ = false;
};

// `text` as a JSON string, without the quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_characters(std::string_view text, std::string& out);

// The same with quotes.
void append_json_string(std::string_view text, std::string& out);

// Finite (checked).
void append_json_number(double number, std::string& out);

}  // namespace heddle::server
