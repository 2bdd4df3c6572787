// SPDX-License-Identifier: Apache-2.0
// Tokenizer converts text to token ids and back. Start here; load_tokenizer() loads the tokenizer
// of a model's folder.
//
// Text is UTF-8. Ill-formed bytes in a text to encode become U+FFFD, one for each maximal subpart:
// the server treats a client with a broken encoder as browsers and Python (errors="replace") do,
// instead of refusing the request.
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
  // Adds the tokens before and after the text that the model's file requests: a BOS token etc.
  bool add_special_tokens = true;
  // If false, <|im_end|> in the text is ten characters, not a token. Added tokens that are not
  // special are tokens in either case.
  bool parse_special_tokens = true;
  // Ends the call early if it returns true (cancellation.h). Null: the call cannot be cancelled.
  const CancellationCheck* is_cancelled = nullptr;
};

// The tokens that a model's files assign to special roles.
struct SpecialRoles {
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> pad;
  std::string bos_text;  // empty if there is no BOS token
  std::string eos_text;
  std::string pad_text;
};

class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Error: kInvalidArgument for a text above kMaxTextBytes, or one that the model's pattern cannot
  // split within its backtracking limit; kCancelled if options.is_cancelled returned true (a text
  // below CancellationPoll::kPollBytes may be encoded nevertheless).
  // Cost: O(n) for normalising and splitting, and O(w log w) for merging words of w bytes.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    EncodeOptions options = {}) const;

  // As encode(), for a text of at most `max_tokens` tokens. Returns false if it has more: `ids` is
  // then unusable.
  // Cost: stops as soon as that is certain, so a text that is too long costs about as much as the
  // longest acceptable one, plus a pass over its bytes to validate them as UTF-8. Exceptions: a
  // normalizer of several steps, or one before a pre-tokenizer that drops text, reads the whole
  // text. If unknown text may produce no tokens, or if a SentencePiece model normalises, a word or
  // a whole text is merged before it is known to be too long. A pre-tokenizer that joins the pieces
  // it splits (pre_tokenizer.h) splits the whole text first.
  [[nodiscard]] Result<bool> encode_at_most(std::string_view text, size_t max_tokens,
                                            EncodeOptions options, std::vector<TokenId>& ids) const;

  // Accepts any ids: those without a token (padding rows of the model, negative ones) produce no
  // text. Incomplete UTF-8 becomes U+FFFD. For streams see IncrementalDetokenizer (detokenizer.h).
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  // Appends the bytes of one token, which may be any part of a character. A leading space that
  // decode() drops (strips_leading_space()) is included.
  virtual void append_token_bytes(TokenId id, bool skip_special_tokens, std::string& out) const = 0;

  // Whether decoding drops a text's first space, which SentencePiece adds.
  [[nodiscard]] virtual bool strips_leading_space() const = 0;

  // Look-ups by the vocabulary's spelling of a token ("Ġworld", "<|im_end|>").
  [[nodiscard]] virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  // empty if no token has the id
  [[nodiscard]] virtual std::string id_to_token(TokenId id) const = 0;

  [[nodiscard]] virtual bool is_special(TokenId id) const = 0;

  // The largest id plus one. The model's embedding may have more rows (padding).
  [[nodiscard]] virtual int64_t vocab_size() const = 0;

  [[nodiscard]] std::optional<TokenId> bos_token() const { return roles_.bos; }

  [[nodiscard]] std::optional<TokenId> eos_token() const { return roles_.eos; }

  [[nodiscard]] std::optional<TokenId> pad_token() const { return roles_.pad; }

  [[nodiscard]] const std::string& bos_text() const { return roles_.bos_text; }

  [[nodiscard]] const std::string& eos_text() const { return roles_.eos_text; }

  [[nodiscard]] const std::string& pad_text() const { return roles_.pad_text; }

 protected:
  Tokenizer() = default;

  // encode_at_most() for valid UTF-8; `ids` is empty. Counts its work in `poll`; once the poll says
  // that the call is cancelled, the result does not matter.
  [[nodiscard]] virtual Result<bool> encode_valid(std::string_view text, size_t max_tokens,
                                                  EncodeOptions options, CancellationPoll& poll,
                                                  std::vector<TokenId>& ids) const = 0;

  void set_roles(SpecialRoles roles) { roles_ = std::move(roles); }

 private:
  SpecialRoles roles_;
};

// Reads the first of these that the folder has: tokenizer.json, vocab.json with merges.txt,
// tiktoken.model, tokenizer.model (SentencePiece). Reads special tokens from tokenizer_config.json
// if it exists. If checkpoint::find_gguf() finds a GGUF file, reads its metadata instead
// (gguf_tokenizer.h). Error: kNotFound if there is none of these; kDataLoss or kUnimplemented
// naming the file, the key in it and the fault.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> load_tokenizer(
    const std::filesystem::path& model_dir);

// Checks that two tokenizers give their ids the same meaning, so that one model can read the tokens
// of another. Ids that only one of them has are ignored. Cost: two strings for each id.
// Error: kInvalidArgument, naming the first id with different tokens, and the two tokens.
[[nodiscard]] Status check_same_tokens(const Tokenizer& tokenizer, const Tokenizer& other);

}  // namespace heddle::tokenizer
