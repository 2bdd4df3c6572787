// SPDX-License-Identifier: Apache-2.0
// spell(): splits a text into tokens as the model's own tokenizer most likely does, using only the
// vocabulary.
//
// The method is byte-pair encoding: of all neighbouring pieces that together are a token, those
// with the lowest id are joined first. Ids are in merge order in vocabularies that were learned
// this way (GPT-2's, tiktoken's, SentencePiece's BPE). Sennrich, Haddow and Birch,
// arXiv:1508.07909.
//
// Threading: a pure function.
#pragma once

#include <string_view>
#include <vector>

#include <heddle/request.h>

#include "grammar/token_trie.h"

namespace heddle::grammar {

inline constexpr size_t kMaxSpelledBytes = 64;

// Appends the tokens of `text`, which has at most kMaxSpelledBytes (checked). Stops before a byte
// that is part of no token. A special token in the text is one token (special_token_bytes()).
// Cost: some microseconds; allocates nothing but the tokens.
void spell(const TokenTrie& trie, std::string_view text, std::vector<TokenId>& tokens);

}  // namespace heddle::grammar
