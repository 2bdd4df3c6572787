// SPDX-License-Identifier: Apache-2.0
// JsonScanner follows a JSON object that arrives in pieces, to its end and no further. It knows
// where strings are, so that marks of a tool call inside an argument's text do not end the call.
//
// It checks all of JSON's grammar, and takes what models write in its place where that has one
// reading; the copy is JSON:
//
//   control characters in strings, which are escaped      a comma too many or too few
//   strings in single quotes, True, False and None        a bracket that another one closes over
//   backslashes before what JSON does not escape          a closing bracket that nothing opened
//   quotes in strings without a backslash (string_end.h)  doubled braces: {{"a": 1}}
//   comments, // and /* */, which are left out           = for a colon, ; for a comma, wide ones
//   texts between three quotes                           an object whose quotes are all escaped
//   numbers of other notations (loose_number.h)
//
// Where the object's keys are known, a quote may be missing, too, and at the end of the call's last
// string in any case (missing_quotes.h).
//
// Threading: thread-compatible.
// Memory:    a byte per level, at most kMaxLevels, and space behind a comma; with a KeyReader the
//            object's keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parsers/answer_delta.h"
#include "parsers/marker_search.h"

namespace heddle::parsers {

class JsonScanner {
 public:
  enum class State { kMore, kDone, kError };

  static constexpr size_t kMaxLevels = 128;

  // The known key that is meant by one that is written; nothing if it means none.
  using KeyReader = std::function<std::optional<std::string>(std::string_view written)>;

  // The JSON of a number that is written in another notation (loose_number.h), for this key of the
  // object; nothing if it is none.
  using NumberReader =
      std::function<std::optional<std::string>(std::string_view key, std::string_view written)>;

  static constexpr size_t kMaxKeyBytes = 256;  // longer ones are copied as they are

  // Starts before the object's '{'.
  JsonScanner() = default;

  // The same; the copy has the keys that `read_key` returns in place of the object's own ones.
  explicit JsonScanner(KeyReader read_key, NumberReader read_number = {})
      : read_key_(std::move(read_key)), read_number_(std::move(read_number)) {}

  // Starts inside `levels` objects, after a value of the innermost: what is left is
  // ", key: value ... }". Every quote without a backslash ends a string.
  static JsonScanner after_value(size_t levels = 1);

  // For text that is JSON as far as it goes: every quote without a backslash ends a string.
  static JsonScanner of_json(KeyReader read_key = {});

  // Reads on. `used` is the number of bytes that belong to the object. For kMore these are all, or
  // those before a quote that the text behind it decides: the caller keeps the rest and calls again
  // with more. For kDone they are those up to the object's '}', for kError those before the wrong
  // byte. Appends them to `copy`, which may be null. `end`: no more text comes unless it is kNone.
  // Not to be called again after kDone.
  [[nodiscard]] State scan(std::string_view text, size_t& used, std::string* copy,
                           TextEnd end = TextEnd::kNone);

  // Whether a key may come next, or a comma and then a key.
  [[nodiscard]] bool awaits_key() const {
    return expect_ == Expect::kFirstKey || expect_ == Expect::kKey ||
           (expect_ == Expect::kComma && !levels_.empty() && !in_list());
  }

  // Of lists and objects that are open.
  [[nodiscard]] size_t num_levels() const { return levels_.size(); }

  // After kMore or kError, where no value is open but lists and objects: closes these in the copy.
  // False elsewhere, and nothing is appended.
  [[nodiscard]] bool close_all(std::string* copy);

 private:
  enum class Expect : uint8_t {
    kObject,  // the '{' of all
    kValue,
    kFirstKey,  // or '}'
    kKey,
    kColon,
    kFirstItem,  // or ']'
    kComma,      // or the end of the list or object
    kString,     // inside one
    kEscape,     // after a backslash
    kHex,        // of \uXXXX
    kMinus,      // after it
    kZero,       // after a leading 0
    kInteger,
    kPoint,  // after it
    kFraction,
    kExponent,  // after e
    kSign,      // after the exponent's sign
    kPower,
    kOtherNumber,  // that is not JSON's
    kWord,         // inside true, false, null
    kSlash,        // that begins a comment
    kLineComment,
    kBlockComment,
    kStar,  // within a block comment
  };

  enum class Level : uint8_t { kObject, kDoubledObject, kList };

  [[nodiscard]] bool step(char c);  // false: wrong here
  [[nodiscard]] bool step_string(char c);
  [[nodiscard]] bool step_escape(char c);
  [[nodiscard]] bool step_comment(char c);
  [[nodiscard]] bool begin_key(char c);
  [[nodiscard]] bool begin_value(char c);
  [[nodiscard]] bool begin_item(char c);
  [[nodiscard]] bool number(char c);
  [[nodiscard]] bool begin_number(char c);
  [[nodiscard]] bool end_number();
  [[nodiscard]] bool close(bool list);

  // Whether the next byte is none of a string, a word or a comment.
  [[nodiscard]] bool reads_structure() const;
  [[nodiscard]] Match read_loose(std::string_view text, bool at_end, size_t& used);

  [[nodiscard]] bool is_colon(char c) const { return c == ':' || (c == '=' && !is_json_); }

  // Whether a quote is missing before `text`. kYes: `size` bytes stand in its place.
  [[nodiscard]] Match misses_quote(std::string_view text, size_t& size, bool at_end) const;
  [[nodiscard]] Match quote_ends(std::string_view behind, TextEnd end) const;
  // Whether the string that is open ends before `text`, with the call.
  [[nodiscard]] Match misses_last_quote(std::string_view text, TextEnd end) const;

  // Whether a member of this known key may come: the object has none yet.
  [[nodiscard]] bool is_next_key(std::string_view written) const;

  [[nodiscard]] bool in_list() const { return levels_.back() == Level::kList; }

  void end_key();
  void write(std::string_view text);

  void write(char c) { write(std::string_view(&c, 1)); }

  std::vector<Level> levels_;
  Expect expect_ = Expect::kObject;
  Expect behind_comment_ = Expect::kObject;
  bool is_key_ = false;           // the string
  char quote_ = '"';              // of the string
  char key_quote_ = '"';          // of the last key
  bool has_bare_quote_ = false;   // the string: a '"' that needed a backslash
  bool has_own_quote_ = false;    // the string: one of quote_ that did not end it
  bool is_bare_ = false;          // the string: its opening quote is missing
  int brackets_in_string_ = 0;    // that are open in the string
  bool after_space_ = false;      // within the string
  int hex_left_ = 0;              // digits
  std::string_view word_;         // what is left of it
  bool is_none_ = false;          // the word: its copy is there already
  std::string comma_;             // and space behind it, until it is known what comes
  bool may_close_again_ = false;  // a doubled object ended here
  bool is_json_ = false;          // of_json()
  bool is_triple_ = false;        // three quotes are around the string
  bool is_escaped_ = false;       // the object is written as within a JSON text
  KeyReader read_key_;
  NumberReader read_number_;
  std::string number_;                       // the beginning of one, which is not written yet
  std::string last_key_;                     // of the object
  std::optional<std::string> key_;           // the object's, while it is read
  std::set<std::string, std::less<>> keys_;  // that it had
  std::string* copy_ = nullptr;              // while scan() runs
};

// The object of which `text` is the beginning, as far as its members are whole: what is open is
// closed, a key without a value left out.
[[nodiscard]] std::string completed_object(std::string_view text);

// Whether the whole text is one JSON value.
[[nodiscard]] bool is_json(std::string_view text);

// `text` as the inside of a JSON string. Bytes from 0x80 on are copied.
void append_escaped(std::string_view text, std::string& out);

}  // namespace heddle::parsers
