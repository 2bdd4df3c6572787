// SPDX-License-Identifier: Apache-2.0
// Sets of characters and their bytes, in UTF-8 or as written in a JSON string.
//
// In constrained JSON strings each character has one spelling: \" and \\, the short escapes \b \t
// \n \f \r, \u00xx in lower case for other control characters, and the character itself for all
// others. Different texts then have different bytes, so that keys can be distinguished. Strings
// without constraints may use every escape of JSON (add_json_string()).
//
// Threading: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_dfa.h"
#include "grammar/nfa.h"

namespace heddle::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodePointRange {
  uint32_t first = 0;
  uint32_t last = 0;  // last code point of the range, included

  bool operator==(const CodePointRange&) const = default;
};

// Sorted ranges without overlap. Ranges may contain surrogates, which have no bytes.
using CodePointSet = std::vector<CodePointRange>;

// Sorts the ranges and joins those that overlap or are adjacent.
void normalise(CodePointSet& set);

[[nodiscard]] CodePointSet complement(CodePointSet set);

[[nodiscard]] inline CodePointSet all_code_points() {
  return {{.first = 0, .last = kMaxCodePoint}};
}

enum class TextForm : uint8_t { kPlain, kJsonString };

// Adds one character of the set between two states.
void add_code_points(Nfa& nfa, NfaState from, const CodePointSet& set, TextForm form, NfaState to);

// As add_code_points(), as a separate automaton for Nfa::add_dfa(). It is deterministic and has a
// tenth of the states, which matters for repeated characters.
[[nodiscard]] ByteDfa code_points_dfa(const CodePointSet& set, TextForm form);

// Adds a JSON string with its quotes, any content and all escapes except those of lone surrogates.
void add_json_string(Nfa& nfa, NfaState from, NfaState to);

// `text`, which must be UTF-8, as a quoted JSON string in the spelling described above.
[[nodiscard]] std::string spell_json_string(std::string_view text);

// Returns the next code point of a UTF-8 text and advances `position` past it. Each invalid byte
// counts as U+FFFD.
[[nodiscard]] uint32_t next_code_point(std::string_view text, size_t& position);

}  // namespace heddle::grammar
