// SPDX-License-Identifier: Apache-2.0
// Texts with a bounded number of characters, as rules that count (nfa.h): their number of states
// does not depend on the bounds. A string's rule includes its quotes, because the masks of a rule
// for the content alone, which may end everywhere, would be expensive.
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

// Larger than the length of any answer: a larger upper bound has no effect.
inline constexpr int64_t kMaxCount = int64_t{1} << 30;

struct CountRange {
  int64_t min = 0;
  std::optional<int64_t> max;
};

[[nodiscard]] Nfa::Counter counter_of(CountRange range);

// Adds any number of characters of the set, between two states of a rule that counts them.
void add_counted_characters(Nfa& nfa, NfaState from, const CodePointSet& set, TextForm form,
                            NfaState to);

// Adds a rule for JSON strings with a bounded number of characters. `range.min` must be at most
// `range.max` and kMaxCount.
RuleId add_counted_string(Nfa& nfa, std::string name, CountRange range);

// Adds a rule for strings with the marks of `spelling` whose content is one of `texts` and has a
// number of characters within `range`. None if no text has. Errors: those of CountWindows::build().
Result<std::optional<RuleId>> add_bounded_string(Nfa& nfa, std::string name, const ByteDfa& texts,
                                                 CountRange range, const TextSpelling& spelling);

}  // namespace heddle::grammar
