// SPDX-License-Identifier: Apache-2.0
// TokenBound computes a lower bound for the number of tokens of a text, without encoding it.
//
// A byte counts as 1/n of a token, where n is the length of the longest token that contains this
// byte. The bytes of any token thus add up to at most one token, and a token of 128 spaces does not
// affect the bound for letters.
//
// Threading: built by one thread, then immutable and thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::tokenizer {

class TokenBound {
 public:
  // Adds the bytes of one token. Call one of the functions below after the last one; without it the
  // bound is 0.
  void add(std::string_view token);

  // Computes the bound for texts that consist of the added tokens and of single bytes.
  void finish();

  // As finish(), for tokens that may represent other bytes than those added, but not more of them.
  void finish_for_any_bytes();

  // Declares that tokens contain `text`, of at most three bytes, where a text to encode has `byte`.
  void set_alias(char byte, std::string_view text);

  // Whether a finish function was called; if not, min_tokens() is always 0.
  [[nodiscard]] bool is_finished() const { return shares_[0] != 0; }

  // Cost: O(bytes), much less than merging. The result is never too large: a sum beyond 2^64 shares
  // wraps around.
  [[nodiscard]] size_t min_tokens(std::string_view text) const {
    return whole_tokens(shares(text));
  }

  // The sum of the shares of a text's bytes. For a text in several parts, add up the sums of the
  // parts and pass the total to whole_tokens().
  [[nodiscard]] uint64_t shares(std::string_view text) const;
  [[nodiscard]] static size_t whole_tokens(uint64_t shares);

 private:
  std::array<size_t, 256> longest_{};  // length of the longest token that contains this byte; 0: no
                                       // token does
  // By byte: the fraction of a token that it counts as, in units of 1/kWholeToken.
  std::array<uint64_t, 256> shares_{};
};

}  // namespace heddle::tokenizer
