// SPDX-License-Identifier: Apache-2.0
// Tokenizer turns text into token ids and back. Start here; load_tokenizer() reads a model's
// folder.
//
// Text is UTF-8. Ill-formed bytes in a text to encode become U+FFFD, one for each maximal subpart:
// a server answers a client with a broken encoder the way browsers and Python (errors="replace")
// would, instead of refusing the request.
//
// Threading: immutable after loading; every method is thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle::tokenizer {

struct EncodeOptions {
  bool add_special_tokens = true;  // what the model's file puts around a text: a BOS token etc.
  bool parse_special_tokens =
      true;  // false: <|im_end|> in the text is ten characters, not a token;
             // added tokens that are not special stay tokens either way
};

// The tokens a model's files name for special roles.
struct SpecialRoles {
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> pad;
  std::string bos_text;  // empty without a token
  std::string eos_text;
  std::string pad_text;
};

class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Error: kInvalidArgument for a text above kMaxTextBytes, or one the model's pattern cannot split
  // within its backtracking limit.
  // Cost: O(n) splitting and O(w log w) merging for words of w bytes.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    EncodeOptions options = {}) const;

  // The same for a text of at most `max_tokens` tokens. False when it has more: `ids` is of no use
  // then.
  // Cost: stops as soon as that is certain, so that a hopeless text costs about what the largest
  // acceptable one does, and a few passes over its bytes: UTF-8, the normalizer, token_bound.h.
  // Where unknown text may cost nothing, or a SentencePiece model normalises, a word or a whole
  // text has to be merged before it is known to be too long; a pre-tokenizer that joins what it
  // splits (pre_tokenizer.h) cuts the whole text first.
  [[nodiscard]] Result<bool> encode_at_most(std::string_view text, size_t max_tokens,
                                            EncodeOptions options, std::vector<TokenId>& ids) const;

  // Any ids are fine: those without a token (padding rows of the model, negative ones) give
  // nothing. Incomplete UTF-8 becomes U+FFFD. See IncrementalDetokenizer (detokenizer.h) for
  // streams.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  // The bytes of one token: any part of a character. A leading space that strips_leading_space()
  // speaks of is still there.
  virtual void append_token_bytes(TokenId id, bool skip_special_tokens, std::string& out) const = 0;

  // True when the first space of a decoded text stands for nothing (SentencePiece puts it there).
  [[nodiscard]] virtual bool strips_leading_space() const = 0;

  // Tokens as the vocabulary writes them ("Ġworld", "<|im_end|>").
  [[nodiscard]] virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  [[nodiscard]] virtual std::string id_to_token(TokenId id) const = 0;  // empty when there is none

  [[nodiscard]] virtual bool is_special(TokenId id) const = 0;

  // One more than the largest id. The model's embedding may have more rows (padding).
  [[nodiscard]] virtual int64_t vocab_size() const = 0;

  [[nodiscard]] std::optional<TokenId> bos_token() const { return roles_.bos; }

  [[nodiscard]] std::optional<TokenId> eos_token() const { return roles_.eos; }

  [[nodiscard]] std::optional<TokenId> pad_token() const { return roles_.pad; }

  [[nodiscard]] const std::string& bos_text() const { return roles_.bos_text; }

  [[nodiscard]] const std::string& eos_text() const { return roles_.eos_text; }

  [[nodiscard]] const std::string& pad_text() const { return roles_.pad_text; }

 protected:
  Tokenizer() = default;

  // encode_at_most() of valid UTF-8 behind no ids.
  [[nodiscard]] virtual Result<bool> encode_valid(std::string_view text, size_t max_tokens,
                                                  EncodeOptions options,
                                                  std::vector<TokenId>& ids) const = 0;

  void set_roles(SpecialRoles roles) { roles_ = std::move(roles); }

 private:
  SpecialRoles roles_;
};

// Reads tokenizer.json, else vocab.json with merges.txt, else tokenizer.model (SentencePiece),
// whichever the folder has first; and tokenizer_config.json, if it is there, for the special
// tokens. Error: kNotFound without any of them; kDataLoss or kUnimplemented naming the file, the
// place in it and what is wrong.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_tokenizer(
    const std::filesystem::path& model_dir);

}  // namespace heddle::tokenizer
