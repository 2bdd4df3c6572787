// SPDX-License-Identifier: Apache-2.0
// TokenBound says how many tokens a text makes at least, without encoding it.
//
// A byte counts for 1/n of a token, where n is the length of the longest token with this byte in
// it. The bytes of any token thereby add up to at most one token, and a run of letters is not
// measured by a token of 128 spaces.
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
  // The bytes of one token. Then one of the functions below; without it the bound is 0.
  void add(std::string_view token);

  // Computes the bound for texts that consist of the tokens added and of single bytes.
  void finish();

  // As finish(), where tokens may stand for other bytes than those added, but for no more of them.
  void finish_for_any_bytes();

  // The tokens have `text`, of at most three bytes, where a text to encode has `byte`.
  void set_alias(char byte, std::string_view text);

  // False: no tokens are known, and min_tokens() is always 0.
  [[nodiscard]] bool is_finished() const { return shares_[0] != 0; }

  // Cost: O(bytes), much less than merging. Never too large: a sum beyond 2^64 shares wraps around.
  [[nodiscard]] size_t min_tokens(std::string_view text) const {
    return whole_tokens(shares(text));
  }

  // The shares of a text. For a text that comes in parts, add up those of the parts and pass the
  // sum to whole_tokens().
  [[nodiscard]] uint64_t shares(std::string_view text) const;
  [[nodiscard]] static size_t whole_tokens(uint64_t shares);

 private:
  std::array<size_t, 256> longest_{};  // token with this byte; 0: none
  // By byte: the share of a token that it counts for; see kWholeToken.
  std::array<uint64_t, 256> shares_{};
};

}  // namespace heddle::tokenizer
