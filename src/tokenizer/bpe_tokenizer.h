// SPDX-License-Identifier: Apache-2.0
// BpeTokenizer runs the whole pipeline of a BPE model: added tokens, normalizer, pre-tokenizer,
// merges, and the special tokens around a text.
//
// Added tokens that are not "normalized" are cut out of the raw text, the others out of the
// normalised rest.
//
// Threading: immutable; thread-safe. Calls share buffers and word caches through a pool.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/scratch_pool.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace heddle::tokenizer {

struct BpeTokenizerParts {
  BpeModel model;
  std::vector<AddedToken> listed_tokens;  // added tokens that count before the configuration's
  std::string_view listed_in;             // the name of their file, of static lifetime
  AddedTokens added_tokens;               // built by create() from the list above
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::vector<TokenId> prefix;  // around every text, with add_special_tokens
  std::vector<TokenId> suffix;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Joins the file's parts with tokenizer_config.json: its added tokens, its roles, and BOS and EOS
  // if it asks for them and the file itself puts nothing around a text.
  //
  // An added token that contradicts the vocabulary gets its id as in Hugging Face's tokenizers, and
  // a warning names both ids: the id that its text has in the vocabulary; where its text is new and
  // its id is that of another token, the next free id. The first of two with the same text counts.
  // Error: kDataLoss for an id out of range or an empty text.
  static Result<std::unique_ptr<Tokenizer>> create(BpeTokenizerParts parts,
                                                   const TokenizerConfig& config);

  void append_token_bytes(TokenId id, bool skip_special_tokens, std::string& out) const override;
  [[nodiscard]] bool strips_leading_space() const override;
  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const override;
  [[nodiscard]] std::string id_to_token(TokenId id) const override;
  [[nodiscard]] bool is_special(TokenId id) const override;
  [[nodiscard]] int64_t vocab_size() const override;

 protected:
  [[nodiscard]] Result<bool> encode_valid(std::string_view text, size_t max_tokens,
                                          EncodeOptions options, CancellationPoll& poll,
                                          std::vector<TokenId>& ids) const override;

 private:
  struct Scratch {
    RegexScratch regex;
    BpeScratch bpe;
    std::string normalized;

    void trim();  // frees the memory of an unusually long text
  };

  // The ids made so far, and the two conditions that end the call.
  struct Encoding {
    std::vector<TokenId>& ids;
    const size_t max_tokens;
    CancellationPoll& poll;

    [[nodiscard]] bool fits() const { return ids.size() <= max_tokens; }

    bool add(TokenId id) {
      ids.push_back(id);
      return fits() && !poll.cancelled_after(1);
    }
  };

  explicit BpeTokenizer(BpeTokenizerParts parts);
  Status build_matchers();
  void set_normalized_bound();
  void apply_config(const TokenizerConfig& config);
  void note_flags_not_used(const TokenizerConfig& config) const;
  bool encode_raw(std::string_view text, bool at_text_start, bool parse_special, Scratch& scratch,
                  Encoding& encoding) const;
  bool encode_piece(std::string_view piece, Scratch& scratch, Encoding& encoding) const;

  BpeTokenizerParts parts_;
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  TokenBound normalized_bound_;  // bound for normalised texts; 0 where none is known
  mutable ScratchPool<Scratch> scratch_pool_;
};

}  // namespace heddle::tokenizer
