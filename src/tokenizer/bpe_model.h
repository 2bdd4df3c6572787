// SPDX-License-Identifier: Apache-2.0
// BpeModel turns one pre-token into ids: initial symbols, then merges.
//
// Byte-level models start from single bytes, the others from characters, where a character outside
// the vocabulary becomes its byte tokens (<0x00>..<0xFF>), the unknown token, or nothing.
//
// Threading: immutable once built; thread-safe with one BpeScratch per call.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

#include "tokenizer/bpe_merge.h"
#include "tokenizer/cancellation.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace heddle::tokenizer {

struct BpeScratch {
  MergeScratch merge;
  std::unique_ptr<WordCache> cache = std::make_unique<WordCache>();
};

struct BpeSettings {
  bool byte_level = false;     // token texts are bytes (byte_alphabet.h), not characters
  bool ignore_merges = false;  // a pre-token that is a token is taken whole
  bool byte_fallback = false;  // not with byte_level
  bool fuse_unknown = false;   // neighbouring unknown characters give one unknown token
  std::optional<TokenId> unknown;
};

class BpeModel {
 public:
  BpeModel(Vocabulary vocabulary, MergeTable merges, BpeSettings settings);

  // Appends the ids of `piece`. False when `poll` ended it: the ids are of no use then.
  [[nodiscard]] bool encode(std::string_view piece, BpeScratch& scratch, CancellationPoll& poll,
                            std::vector<TokenId>& ids) const;

  // encode() gives no fewer ids than bound().min_tokens(). 0 where the model does not know every
  // byte: unknown text may cost nothing.
  [[nodiscard]] const TokenBound& bound() const { return bound_; }

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

  [[nodiscard]] const BpeSettings& settings() const { return settings_; }

  // As the vocabulary file writes it; empty for an id that is not here.
  [[nodiscard]] std::string spelling(TokenId id) const;
  [[nodiscard]] std::optional<TokenId> find_spelling(std::string_view spelling) const;

  // The byte that a byte-fallback token stands for.
  [[nodiscard]] std::optional<char> byte_of_token(TokenId id) const;

 private:
  [[nodiscard]] bool append_ids(std::string_view piece, MergeScratch& scratch,
                                CancellationPoll& poll, std::vector<TokenId>& ids) const;
  void set_byte_symbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void set_character_symbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  bool append_byte_tokens(std::string_view character, std::vector<TokenId>& symbols) const;
  void set_bound();
  bool append_unknown(bool previous_unknown, std::vector<TokenId>& symbols) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeSettings settings_;
  std::array<TokenId, 256> byte_tokens_{};  // of single bytes, or of <0xNN>; -1: none
  TokenBound bound_;
};

}  // namespace heddle::tokenizer
