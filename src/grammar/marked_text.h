// SPDX-License-Identifier: Apache-2.0
// Free text up to the first of some marks, as in "anything, then <tool_call>". The automaton is the
// one of Aho and Corasick, "Efficient string matching", 1975. Special tokens do not stand in it
// unless they are a mark.
//
// Threading: free functions.
#pragma once

#include <span>
#include <string>

#include "grammar/nfa.h"

namespace heddle::grammar {

// A mark, and the state after its last byte.
struct Mark {
  std::string text;  // not empty; or special_token_bytes()
  NfaState target = 0;
};

// From `from`, any bytes of text without a mark, then a mark. `may_end`: the text may also end
// before a mark, at `end`. Of marks that are complete at once, the first counts. Without marks it
// is any text.
void add_marked_text(Nfa& nfa, NfaState from, std::span<const Mark> marks, bool may_end,
                     NfaState end);

}  // namespace heddle::grammar
