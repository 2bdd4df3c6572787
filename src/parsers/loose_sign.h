// SPDX-License-Identifier: Apache-2.0
// Reads signs that models write instead of JSON's signs between keys and values.
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
  kTripleQuote,    // Python's triple quotes: """text"""
  kEscapedObject,  // \": the object's quotes have backslashes, as in a JSON string
};

struct LooseSign {
  Match match = Match::kNo;
  SignKind kind = SignKind::kWide;
  size_t size = 0;
  char meaning = 0;  // the JSON sign that is meant
};

// Reads a full-width sign at the beginning of `text`; kMore if more text is needed to decide.
[[nodiscard]] LooseSign read_wide_sign(std::string_view text);

// Reads a sign of any kind at the beginning of `text`. `before_value`: a value may begin there.
[[nodiscard]] LooseSign read_loose_sign(std::string_view text, bool before_value);

// Whether `text` begins with three of `quote`.
[[nodiscard]] Match begins_triple_quote(std::string_view text, char quote);

// The character that a backslash and `escaped` mean: a line break for `n`.
[[nodiscard]] char unescaped(char escaped);

}  // namespace heddle::parsers
