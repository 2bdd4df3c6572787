// SPDX-License-Identifier: Apache-2.0
// spell(): cuts a text into tokens as the model's own tokenizer most likely does, from the
// vocabulary alone.
//
// That is byte-pair encoding: of all neighbours that together are a token, those with the lowest id
// are joined first. Ids are the order of the merges in vocabularies that were learned as such
// (GPT-2's, tiktoken's, SentencePiece's BPE). Sennrich, Haddow and Birch, arXiv:1508.07909.
//
// Threading: a pure function.
#pragma once

#include <string_view>
#include <vector>

#include <heddle/request.h>

#include "grammar/token_trie.h"

namespace heddle::grammar {

inline constexpr size_t kMaxSpelledBytes = 64;

// Appends the tokens of `text`, which has at most kMaxSpelledBytes (checked). They end before a
// byte that is part of no token. A special token within is one as a whole (special_token_bytes()).
// Cost: some microseconds; allocates nothing but the tokens.
void spell(const TokenTrie& trie, std::string_view text, std::vector<TokenId>& tokens);

}  // namespace heddle::grammar
