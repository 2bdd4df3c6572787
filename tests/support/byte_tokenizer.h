// SPDX-License-Identifier: Apache-2.0
// ByteTokenizer: token i below 256 is the byte i, the ids above are special tokens "<256>",
// "<257>", ... So that a test can write its tokens as text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tokenizer/tokenizer.h"

namespace heddle::testing {

class ByteTokenizer final : public tokenizer::Tokenizer {
 public:
  static constexpr int64_t kVocabSize = 300;
  static constexpr TokenId kEos = 256;

  static std::vector<TokenId> tokens_of(std::string_view text) {
    std::vector<TokenId> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }

  void append_token_bytes(TokenId id, bool skip_special_tokens, std::string& out) const override {
    if (id >= 0 && id < 256) out += static_cast<char>(id);
    if (is_special(id) && !skip_special_tokens) out += id_to_token(id);
  }

  [[nodiscard]] bool strips_leading_space() const override { return false; }

  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const override {
    for (TokenId id = 0; id < kVocabSize; ++id) {
      if (id_to_token(id) == token) return id;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::string id_to_token(TokenId id) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    return is_special(id) ? fmt::format("<{}>", id) : "";
  }

  [[nodiscard]] bool is_special(TokenId id) const override { return id >= 256 && id < kVocabSize; }

  [[nodiscard]] int64_t vocab_size() const override { return kVocabSize; }

 protected:
  [[nodiscard]] Result<bool> encode_valid(std::string_view text, size_t max_tokens,
                                          tokenizer::EncodeOptions, tokenizer::CancellationPoll&,
                                          std::vector<TokenId>& ids) const override {
    ids = tokens_of(text);
    return ids.size() <= max_tokens;
  }
};

}  // namespace heddle::testing
