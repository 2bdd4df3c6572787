// SPDX-License-Identifier: Apache-2.0
// JsonScanner follows a JSON object that arrives in pieces, to its end and no further. It knows
// where strings are, so that marks of a tool call inside an argument's text do not end the call.
//
// It checks all of JSON's grammar, with one indulgence: control characters inside strings, which
// models write for line breaks, are taken and escaped in the copy.
//
// Threading: thread-compatible.
// Memory:    a bit per level, at most kMaxLevels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::parsers {

class JsonScanner {
 public:
  enum class State { kMore, kDone, kError };

  static constexpr size_t kMaxLevels = 128;

  // Starts before the object's '{'.
  JsonScanner() = default;

  // Starts inside an object, after one of its values: what is left is ", key: value ... }".
  static JsonScanner after_value();

  // Reads on. `used` is the number of bytes that belong to the object: all of them for kMore, those
  // up to its '}' for kDone, those before the wrong one for kError. Appends them to `copy`, which
  // may be null. Not to be called again after kDone or kError.
  [[nodiscard]] State scan(std::string_view text, size_t& used, std::string* copy);

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
    kWord,  // inside true, false, null
  };

  [[nodiscard]] bool step(char c);  // false: wrong here
  [[nodiscard]] bool begin_value(char c);
  [[nodiscard]] bool number(char c);
  [[nodiscard]] bool close(bool list);

  std::vector<bool> levels_;  // true: a list
  Expect expect_ = Expect::kObject;
  bool is_key_ = false;    // the string
  int hex_left_ = 0;       // digits
  std::string_view word_;  // what is left of it
};

// Whether the whole text is one JSON value.
[[nodiscard]] bool is_json(std::string_view text);

// `text` as the inside of a JSON string. Bytes from 0x80 on are copied.
void append_escaped(std::string_view text, std::string& out);

}  // namespace heddle::parsers
