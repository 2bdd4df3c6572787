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

#include "tokenizer/cancellation.h"

namespace heddle::tokenizer {

struct EncodeOptions {
  // Puts the tokens around the text that the model's file asks for: a BOS token etc.
  bool add_special_tokens = true;
  // False: <|im_end|> in the text is ten characters, not a token. Added tokens that are not special
  // stay tokens either way.
  bool parse_special_tokens = true;
  // Ends the call early (cancellation.h). Null: the call cannot be cancelled.
  const CancellationCheck* is_cancelled = nullptr;
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
  // within its backtracking limit; kCancelled when options.is_cancelled said so (a text below
  // CancellationPoll::kPollBytes may be encoded all the same).
  // Cost: O(n) normalising and splitting, and O(w log w) merging for words of w bytes.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    EncodeOptions options = {}) const;

  // The same for a text of at most `max_tokens` tokens. False when it has more: `ids` is of no use
  // then.
  // Cost: stops as soon as that is certain, so that a text that is too long costs about as much as
  // the longest acceptable one, and a pass over its bytes to validate them as UTF-8. There are
  // exceptions. A normalizer of several steps, or one before a pre-tokenizer that drops text, reads
  // the whole text. Where unknown text may cost nothing, or a SentencePiece model normalises, a
  // word or a whole text is merged before it is known to be too long. A pre-tokenizer that joins
  // the pieces it splits (pre_tokenizer.h) cuts the whole text first.
  [[nodiscard]] Result<bool> encode_at_most(std::string_view text, size_t max_tokens,
                                            EncodeOptions options, std::vector<TokenId>& ids) const;

  // Any ids are fine: those without a token (padding rows of the model, negative ones) give
  // nothing. Incomplete UTF-8 becomes U+FFFD. See IncrementalDetokenizer (detokenizer.h) for
  // streams.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  // The bytes of one token: any part of a character. A leading space that strips_leading_space()
  // speaks of is still there.
  virtual void append_token_bytes(TokenId id, bool skip_special_tokens, std::string& out) const = 0;

  // Whether decoding drops a text's first space, which SentencePiece adds.
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

  // encode_at_most() of valid UTF-8; `ids` is empty. Counts its work in `poll` and returns anything
  // once that says that the call is cancelled.
  [[nodiscard]] virtual Result<bool> encode_valid(std::string_view text, size_t max_tokens,
                                                  EncodeOptions options, CancellationPoll& poll,
                                                  std::vector<TokenId>& ids) const = 0;

  void set_roles(SpecialRoles roles) { roles_ = std::move(roles); }

 private:
  SpecialRoles roles_;
};

// Reads tokenizer.json, else vocab.json with merges.txt, else tiktoken.model, else tokenizer.model
// (SentencePiece), whichever the folder has first; and tokenizer_config.json, if it is there, for
// the special tokens. Where checkpoint::find_gguf() finds one: from the metadata of a GGUF file
// (gguf_tokenizer.h). Error: kNotFound without any of them; kDataLoss or kUnimplemented naming the
// file, the key in it and what is wrong.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_tokenizer(
    const std::filesystem::path& model_dir);

// Whether two tokenizers give their ids the same meaning, so that one model can read the tokens of
// another. Ids that only one of them has do not count. Cost: two strings for each id.
// Error: kInvalidArgument, naming the first id whose tokens differ and both of them.
[[nodiscard]] Status check_same_tokens(const Tokenizer& tokenizer, const Tokenizer& other);

}  // namespace heddle::tokenizer
