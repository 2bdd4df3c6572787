// SPDX-License-Identifier: Apache-2.0
// Sets of characters and their bytes: as they are in UTF-8, or as they are written in a JSON
// string.
//
// Inside constrained JSON strings each character has one spelling: \" and \\, the short escapes
// \b \t \n \f \r, \u00xx in lower case for other control characters, and all others as they are.
// Then different texts are different bytes, so that keys can be distinguished. Strings without
// any condition may use every escape of JSON (add_json_string()).
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
  uint32_t last = 0;  // included

  bool operator==(const CodePointRange&) const = default;
};

// Sorted, without overlap. Surrogates may lie in ranges; they have no bytes.
using CodePointSet = std::vector<CodePointRange>;

// Sorts and joins.
void normalise(CodePointSet& set);

[[nodiscard]] CodePointSet complement(CodePointSet set);

[[nodiscard]] inline CodePointSet all_code_points() {
  return {{.first = 0, .last = kMaxCodePoint}};
}

enum class TextForm : uint8_t { kPlain, kJsonString };

// One character of the set.
void add_code_points(Nfa& nfa, NfaState from, const CodePointSet& set, TextForm form, NfaState to);

// The same as a separate automaton for Nfa::add_dfa(): a copy has a tenth of the states and is
// deterministic. For repeated characters.
[[nodiscard]] ByteDfa code_points_dfa(const CodePointSet& set, TextForm form);

// A JSON string with its quotes, any content and all escapes but those of lone surrogates.
void add_json_string(Nfa& nfa, NfaState from, NfaState to);

// `text`, which is UTF-8, spelled as above, with quotes.
[[nodiscard]] std::string spell_json_string(std::string_view text);

// The next code point of a UTF-8 text; moves `position` past it. Invalid bytes are U+FFFD, one
// each.
[[nodiscard]] uint32_t next_code_point(std::string_view text, size_t& position);

}  // namespace heddle::grammar
