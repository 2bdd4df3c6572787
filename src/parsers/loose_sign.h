// SPDX-License-Identifier: Apache-2.0
// Reads what models write between the keys and values of a JSON text in place of JSON's own signs.
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "parsers/marker_search.h"

namespace heddle::parsers {

enum class SignKind : uint8_t {
  kWide,           // a full-width colon, comma or semicolon
  kTripleQuote,    // Python's: """text"""
  kEscapedObject,  // \": quotes have a backslash, as in a JSON object within a JSON text
};

struct LooseSign {
  Match match = Match::kNo;
  SignKind kind = SignKind::kWide;
  size_t size = 0;
  char meaning = 0;  // JSON's sign
};

// The wide sign at the front of `text`; kMore if it takes more text to tell.
[[nodiscard]] LooseSign read_wide_sign(std::string_view text);

// The sign of any kind at the front of `text`; a value may begin there if `before_value`.
[[nodiscard]] LooseSign read_loose_sign(std::string_view text, bool before_value);

// Whether `text` begins with three of `quote`.
[[nodiscard]] Match begins_triple_quote(std::string_view text, char quote);

// The character of which `escaped` is the end: a line break for the `n` of "\n".
[[nodiscard]] char unescaped(char escaped);

}  // namespace heddle::parsers
