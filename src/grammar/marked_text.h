// SPDX-License-Identifier: Apache-2.0
// Free text up to the first of several marks, as in "anything, then <tool_call>". The automaton is
// that of Aho and Corasick, "Efficient string matching", 1975. Free text contains no special
// tokens, except as marks.
//
// Threading: free functions.
#pragma once

#include <span>
#include <string>

#include "grammar/nfa.h"

namespace heddle::grammar {

// A mark, and the state after its last byte.
struct Mark {
  std::string text;  // the text, not empty, or special_token_bytes()
  NfaState target = 0;
};

// Adds paths from `from`: text without a mark, then a mark. `may_end`: the text may also end before
// a mark, at `end`. If several marks are complete at the same byte, the first one counts. Without
// marks any text is accepted.
void add_marked_text(Nfa& nfa, NfaState from, std::span<const Mark> marks, bool may_end,
                     NfaState end);

}  // namespace heddle::grammar
