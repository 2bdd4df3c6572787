// SPDX-License-Identifier: Apache-2.0
// JsonScanner parses a JSON object that arrives in pieces, up to its end. It knows where strings
// are, so that marks of a tool call inside a string argument do not end the call.
//
// It checks JSON's complete grammar. It also accepts the following mistakes of models if they have
// only one interpretation; the copy is valid JSON:
//
//   control characters in strings, which are escaped      a comma too many or too few
//   strings in single quotes, True, False and None        a bracket that another one closes over
//   backslashes before what JSON does not escape          a closing bracket that nothing opened
//   quotes in strings without a backslash (string_end.h)  doubled braces: {{"a": 1}}
//   comments, // and /* */, which are left out           = for a colon, ; for a comma, wide ones
//   texts between three quotes                           an object whose quotes are all escaped
//   numbers of other notations (loose_number.h)
//
// If the object's keys are known, a quote may be missing, too. The closing quote of the call's last
// string may be missing in any case (missing_quotes.h).
//
// Threading: thread-compatible.
// Memory:    a byte per level, at most kMaxLevels, and the space after a comma; with a KeyReader
// the object's keys.
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

  // Returns the known key that a written key means; none if it means none.
  using KeyReader = std::function<std::optional<std::string>(std::string_view written)>;

  // Converts a number in another notation (loose_number.h), for this key of the object, to JSON;
  // none if it is not a number.
  using NumberReader =
      std::function<std::optional<std::string>(std::string_view key, std::string_view written)>;

  static constexpr size_t kMaxKeyBytes = 256;  // bytes; longer keys are copied unchanged

  // A scanner that expects the object's '{'.
  JsonScanner() = default;

  // The same, but the copy has the keys that `read_key` returns instead of those that were written.
  explicit JsonScanner(KeyReader read_key, NumberReader read_number = {})
      : read_key_(std::move(read_key)), read_number_(std::move(read_number)) {}

  // A scanner inside `levels` objects, after a value of the innermost one: the remaining text is ",
  // key: value ... }". Every quote without a backslash ends a string.
  static JsonScanner after_value(size_t levels = 1);

  // A scanner for text that is valid JSON or the beginning of it: every quote without a backslash
  // ends a string.
  static JsonScanner of_json(KeyReader read_key = {});

  // Parses more text. `used` is set to the number of bytes that belong to the object; they are
  // appended to `copy`, which may be null. kMore: these are all bytes, or those before a quote that
  // later text decides; the caller keeps the rest and passes it again with more text. kDone: the
  // bytes up to the object's '}'. kError: the bytes before the wrong one. `end`: kNone if more text
  // may come. Must not be called again after kDone.
  [[nodiscard]] State scan(std::string_view text, size_t& used, std::string* copy,
                           TextEnd end = TextEnd::kNone);

  // Whether a key, or a comma and then a key, may come next.
  [[nodiscard]] bool awaits_key() const {
    return expect_ == Expect::kFirstKey || expect_ == Expect::kKey ||
           (expect_ == Expect::kComma && !levels_.empty() && !in_list());
  }

  // Number of open lists and objects.
  [[nodiscard]] size_t num_levels() const { return levels_.size(); }

  // After kMore or kError: if only lists and objects are open, closes them in the copy. Otherwise
  // returns false and appends nothing.
  [[nodiscard]] bool close_all(std::string* copy);

 private:
  enum class Expect : uint8_t {
    kObject,  // the outermost object's '{'
    kValue,
    kFirstKey,  // a key, or '}'
    kKey,
    kColon,
    kFirstItem,  // an item, or ']'
    kComma,      // a comma, or the end of the list or object
    kString,     // the next character of a string
    kEscape,     // the character after a backslash
    kHex,        // a hexadecimal digit of \uXXXX
    kMinus,      // a digit after a minus
    kZero,       // what may follow a leading 0
    kInteger,
    kPoint,  // a digit after the decimal point
    kFraction,
    kExponent,  // a digit or sign after e
    kSign,      // a digit after the exponent's sign
    kPower,
    kOtherNumber,  // the rest of a number in a notation other than JSON's
    kWord,         // the next letter of true, false or null
    kSlash,        // the second character of a comment's beginning
    kLineComment,
    kBlockComment,
    kStar,  // a '/' after '*' in a block comment
  };

  enum class Level : uint8_t { kObject, kDoubledObject, kList };

  [[nodiscard]] bool step(char c);  // returns false if `c` is wrong here
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

  // Whether the next byte is outside of strings, words and comments.
  [[nodiscard]] bool reads_structure() const;
  [[nodiscard]] Match read_loose(std::string_view text, bool at_end, size_t& used);

  [[nodiscard]] bool is_colon(char c) const { return c == ':' || (c == '=' && !is_json_); }

  // Whether a quote is missing before `text`. With kYes, `size` bytes of `text` stand for the
  // quote.
  [[nodiscard]] Match misses_quote(std::string_view text, size_t& size, bool at_end) const;
  [[nodiscard]] Match quote_ends(std::string_view behind, TextEnd end) const;
  // Whether the open string ends before `text`, at the end of the call.
  [[nodiscard]] Match misses_last_quote(std::string_view text, TextEnd end) const;

  // Whether the object may have a member with this known key, because it has none yet.
  [[nodiscard]] bool is_next_key(std::string_view written) const;

  [[nodiscard]] bool in_list() const { return levels_.back() == Level::kList; }

  void end_key();
  void write(std::string_view text);

  void write(char c) { write(std::string_view(&c, 1)); }

  std::vector<Level> levels_;
  Expect expect_ = Expect::kObject;
  Expect behind_comment_ = Expect::kObject;
  bool is_key_ = false;           // the current string is a key
  char quote_ = '"';              // quote character that began the current string
  char key_quote_ = '"';          // quote character of the last key
  bool has_bare_quote_ = false;   // the current string contains a '"' that needed a backslash
  bool has_own_quote_ = false;    // the current string contains its quote character without ending
                                  // there
  bool is_bare_ = false;          // the current string has no opening quote
  int brackets_in_string_ = 0;    // number of brackets that are open within the current string
  bool after_space_ = false;      // the last character in the current string was white space
  int hex_left_ = 0;              // hexadecimal digits of \uXXXX still expected
  std::string_view word_;         // remaining letters of the current word
  bool is_none_ = false;          // the current word is Python's None, whose copy is already
                                  // written
  std::string comma_;             // a comma and the space after it, held back until the next
                                  // character is known
  bool may_close_again_ = false;  // a doubled object ended here, so a second '}' may follow
  bool is_json_ = false;          // made by of_json(): accepts valid JSON only
  bool is_triple_ = false;        // the current string is between three quotes on each side
  bool is_escaped_ = false;       // the object's quotes are escaped, as in a JSON string
  KeyReader read_key_;
  NumberReader read_number_;
  std::string number_;                       // beginning of a number that is not written yet
  std::string last_key_;                     // last key of the object
  std::optional<std::string> key_;           // current key of the object, while it is read
  std::set<std::string, std::less<>> keys_;  // keys that the object already has
  std::string* copy_ = nullptr;              // target of the copy during scan()
};

// The object of which `text` is the beginning, with its complete members: everything open is
// closed, and a key without a value is dropped.
[[nodiscard]] std::string completed_object(std::string_view text);

// Whether the whole text is one JSON value.
[[nodiscard]] bool is_json(std::string_view text);

// Appends `text` as the content of a JSON string. Bytes from 0x80 on are copied.
void append_escaped(std::string_view text, std::string& out);

}  // namespace heddle::parsers
