// SPDX-License-Identifier: Apache-2.0
// Texts of so many characters: rules that count (nfa.h), whose size does not depend on the bounds.
// Strings are rules with their quotes: a string's inside, which may end everywhere, would be one
// whose masks cost much.
//
// Threading: free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <heddle/status.h>

#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"
#include "grammar/nfa.h"
#include "grammar/value_spelling.h"

namespace heddle::grammar {

// No answer is that long: larger bounds from above bound nothing.
inline constexpr int64_t kMaxCount = int64_t{1} << 30;

struct CountRange {
  int64_t min = 0;
  std::optional<int64_t> max;
};

[[nodiscard]] Nfa::Counter counter_of(CountRange range);

// Any number of characters of the set, between states of a rule that counts them.
void add_counted_characters(Nfa& nfa, NfaState from, const CodePointSet& set, TextForm form,
                            NfaState to);

// A rule for JSON strings with a bounded number of characters. `range.min` is at most `range.max`
// and kMaxCount.
RuleId add_counted_string(Nfa& nfa, std::string name, CountRange range);

// A rule of strings in the form of `spelling`, with its marks, whose content is one of `texts` and
// has a number of characters within `range`. None where no text has. Errors: those of
// CountWindows::build().
Result<std::optional<RuleId>> add_bounded_string(Nfa& nfa, std::string name, const ByteDfa& texts,
                                                 CountRange range, const TextSpelling& spelling);

}  // namespace heddle::grammar
