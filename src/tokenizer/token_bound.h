// SPDX-License-Identifier: Apache-2.0
// TokenBound says how many tokens a text makes at least, without encoding it.
//
// A byte counts for as little of a token as the longest token with this byte in it leaves to each
// of its own, so that the bytes of any token add up to no more than one. A run of letters is
// thereby not measured by a token of 128 spaces.
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

  // Every text is made of the tokens added, and of single bytes.
  void finish();

  // The same where tokens may stand for other bytes than those added, but no more of them.
  void finish_for_any_bytes();

  // `byte` stands for `text`, of at most three bytes, in what was added.
  void set_alias(char byte, std::string_view text);

  // False: nothing was said about the tokens, and min_tokens() is always 0.
  [[nodiscard]] bool is_finished() const { return shares_[0] != 0; }

  // Cost: O(bytes), a small part of the time that merging takes. Never too large: a sum beyond 2^64
  // shares begins again at 0.
  [[nodiscard]] size_t min_tokens(std::string_view text) const {
    return whole_tokens(shares(text));
  }

  // The same for a text that comes in parts: the shares of its parts add up.
  [[nodiscard]] uint64_t shares(std::string_view text) const;
  [[nodiscard]] static size_t whole_tokens(uint64_t shares);

 private:
  std::array<size_t, 256> longest_{};   // token with this byte; 0: none
  std::array<uint64_t, 256> shares_{};  // of a token that this byte counts for; see kWholeToken
};

}  // namespace heddle::tokenizer
