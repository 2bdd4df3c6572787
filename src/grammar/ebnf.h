// SPDX-License-Identifier: Apache-2.0
// EBNF in the notation of llama.cpp's GBNF, which XGrammar accepts, too:
//
//   root  ::= "{" pair ("," pair)* "}"     # the answer is a root
//   pair  ::= key ":" [0-9]+
//   key   ::= "\"" [^"\x00-\x1F]{1,20} "\""
//
// Supported: literals with the escapes \" \\ \n \r \t \xHH \uHHHH \UHHHHHHHH, classes, . for any
// character, names, groups, alternatives, * + ? {m} {m,} {m,n}, comments with #. A rule ends where
// the next NAME ::= begins.
//
// Threading: a free function.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

inline constexpr size_t kMaxEbnfBytes = size_t{256} << 10;

// Adds a grammar between two states. Error: kInvalidArgument with the line and the fault, or the
// name of a missing rule; it also becomes `nfa`'s status.
Status add_ebnf(Nfa& nfa, NfaState from, std::string_view text, NfaState to);

}  // namespace heddle::grammar
