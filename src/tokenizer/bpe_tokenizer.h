// SPDX-License-Identifier: Apache-2.0
// BpeTokenizer runs the complete pipeline of a BPE model: added tokens, normalizer, pre-tokenizer,
// merges, and the special tokens before and after a text.
//
// Added tokens that are not "normalized" are found in the raw text, the others in the normalised
// rest.
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
  std::vector<AddedToken> listed_tokens;  // added tokens that have priority over the
                                          // configuration's
  std::string_view listed_in;             // name of the file that lists them, with static lifetime
  AddedTokens added_tokens;               // filled by create() from listed_tokens
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::vector<TokenId> prefix;  // tokens before every text, if add_special_tokens is set
  std::vector<TokenId> suffix;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Combines the file's parts with tokenizer_config.json: its added tokens, its roles, and, if it
  // requests them and the file itself adds no tokens around a text, BOS and EOS.
  //
  // An added token that contradicts the vocabulary gets the id that Hugging Face's tokenizers give
  // it, and a warning names both ids: the vocabulary's id of its text; or, if its text is new and
  // its id belongs to another token, the next free id. Of two tokens with the same text the first
  // is used. Error: kDataLoss for an id out of range or an empty text.
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

  // The ids so far, and the two conditions that end the call.
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
  TokenBound normalized_bound_;  // bound for normalised texts; 0 if no bound is known
  mutable ScratchPool<Scratch> scratch_pool_;
};

}  // namespace heddle::tokenizer
