// SPDX-License-Identifier: Apache-2.0
// EBNF in the notation of llama.cpp's GBNF, which XGrammar takes too:
//
//   root  ::= "{" pair ("," pair)* "}"     # the answer is a root
//   pair  ::= key ":" [0-9]+
//   key   ::= "\"" [^"\x00-\x1F]{1,20} "\""
//
// Literals with the escapes \" \\ \n \r \t \xHH \uHHHH \UHHHHHHHH, classes, . for any character,
// names, groups, alternatives, * + ? {m} {m,} {m,n}, comments with #. A rule ends where the next
// NAME ::= begins.
//
// Threading: a free function.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

inline constexpr size_t kMaxEbnfBytes = size_t{256} << 10;

// Error: kInvalidArgument with the line and what is wrong there, or the name of a rule that is
// missing; it is also `nfa`'s status then.
Status add_ebnf(Nfa& nfa, NfaState from, std::string_view text, NfaState to);

}  // namespace heddle::grammar
