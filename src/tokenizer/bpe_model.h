// SPDX-License-Identifier: Apache-2.0
// BpeModel converts one pre-token to ids: initial symbols, then merges. BpeBuilder makes it from a
// file's spellings; TokenDecoder converts its tokens back to bytes.
//
// Byte-level models start from single bytes, others from characters; there a character outside the
// vocabulary becomes its byte tokens (<0x00>..<0xFF>), the unknown token, or nothing.
//
// Threading: immutable once built; thread-safe with one BpeScratch per call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
  bool byte_level = false;     // true: token texts are bytes (vocabulary.h); false: characters
  bool ignore_merges = false;  // a pre-token that is itself a token becomes that token, without
                               // merges
  bool byte_fallback = false;  // unknown characters become byte tokens; not with byte_level
  bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
  std::optional<TokenId> unknown;
};

class BpeModel {
 public:
  BpeModel(Vocabulary vocabulary, MergeTable merges, BpeSettings settings);

  // Appends the ids of `piece`. Returns false if `poll` ended the call: the ids are then unusable.
  [[nodiscard]] bool encode(std::string_view piece, BpeScratch& scratch, CancellationPoll& poll,
                            std::vector<TokenId>& ids) const;

  // A lower bound: encode() returns at least bound().min_tokens() ids. 0 if the model does not know
  // every byte, because unknown text may produce no token.
  [[nodiscard]] const TokenBound& bound() const { return bound_; }

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

  [[nodiscard]] const BpeSettings& settings() const { return settings_; }

  // The token's spelling in the vocabulary file; empty for an id that the model does not have.
  [[nodiscard]] std::string spelling(TokenId id) const;
  [[nodiscard]] std::optional<TokenId> find_spelling(std::string_view spelling) const;

  // The byte of a byte-fallback token; nullopt for other tokens.
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
  // Ids of the tokens for single bytes, plain or as <0xNN>; -1: no such token.
  std::array<TokenId, 256> byte_tokens_{};
  TokenBound bound_;
};

// BpeBuilder makes a BpeModel from the spellings in vocabulary files: first all tokens, then the
// merges in rank order.
//
// Cost: about 60 ns a token and 80 ns a merge on a vocabulary of 150 thousand.
class BpeBuilder {
 public:
  explicit BpeBuilder(bool byte_level) : byte_level_(byte_level) {}

  void reserve_tokens(size_t num_tokens, size_t num_bytes);
  void reserve_merges(size_t num_merges);

  // Removes all tokens and merges.
  void clear() { *this = BpeBuilder(byte_level_); }

  // Adds a token. Error: kDataLoss for an id out of range, or an id or a spelling that was added
  // before.
  Status add_token(std::string_view spelling, int64_t id);

  // As add_token(), for a byte-level token that is stored as plain bytes.
  Status add_bytes(std::string_view bytes, int64_t id);

  // For files that rank tokens by their ids and have no merges: adds every merge that makes a
  // token, with the token's id as its rank. Call it once, after the last token. Error: kDataLoss
  // naming the first id without a token, or a byte that is not a token.
  Status add_ranked_merges();

  // Adds a merge. Error: kDataLoss naming the token that is not in the vocabulary.
  Status add_merge(std::string_view left, std::string_view right);

  // Adds the merge that is spelled "left right".
  Status add_merge_line(std::string_view line);

  [[nodiscard]] std::optional<TokenId> find_spelling(std::string_view spelling) const;

  [[nodiscard]] BpeModel build(BpeSettings settings) &&;

 private:
  Status add_literal_merge(std::string_view left, std::string_view right);
  [[nodiscard]] TokenId find_merged(std::string_view left, std::string_view right);

  bool byte_level_;
  Vocabulary vocabulary_;
  std::vector<MergeRule> merges_;
  uint32_t next_rank_ = 0;
  TokenId last_merged_ = -1;  // id made by the last merge; the next merge most often makes this id
                              // or the next one
  std::string left_bytes_;
  std::string right_bytes_;
  std::string merged_bytes_;
};

// TokenDecoder converts a vocabulary token to the bytes that it means: the "decoder" of a tokenizer
// file.
//
// Threading: immutable once built; thread-safe.
struct TokenDecoder {
  bool byte_fallback = false;        // the token <0x0A> means a newline
  bool strip_leading_space = false;  // drops the space at the beginning of the decoded text
  std::vector<std::pair<std::string, std::string>> replacements;  // ("▁", " "), applied in order

  void append_bytes(const BpeModel& model, TokenId id, std::string& out) const;
};

}  // namespace heddle::tokenizer
