// SPDX-License-Identifier: Apache-2.0
// TextIndex: finds where the end of a text occurred before. It remembers the last tokens it was
// given, in a ring, and for each of them the one before it that ends the same kMinMatch tokens; a
// search follows that chain, as LZ77 does (Ziv and Lempel, "A universal algorithm for sequential
// data compression", 1977).
//
// Threading: thread-confined. Cost: append() O(1) on average; a search at most kMaxCandidates
// comparisons of kMaxMatch tokens. Memory: 20 bytes for each token remembered, in powers of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

namespace heddle::speculative {

class TextIndex {
 public:
  static constexpr int64_t kMinMatch = 3;
  static constexpr int64_t kMaxMatch = 16;
  static constexpr int kMaxCandidates = 16;

  // Remembers at least the last `num_tokens` tokens. Takes memory as it needs it.
  explicit TextIndex(int64_t num_tokens);

  // Appends a token, which is >= 0, to the text.
  void append(TokenId token);

  // The next tokens are of another text: no match spans both, nor does what follows a match.
  void end_text();

  // A place where the last tokens of a text occurred.
  struct Match {
    int64_t length = 0;  // how many tokens, at most kMaxMatch; 0: less than kMinMatch
    int64_t next = 0;    // position after the match, for following()
  };

  // Finds places where an end of `tokens` occurred before and continues with a different token
  // each: replaces `out` by up to `most` matches, the longest first, the most recent first among
  // equals. The end of what was appended, and that of a text, have no continuation.
  void find(std::span<const TokenId> tokens, size_t most, std::vector<Match>& out) const;

  // Appends to `out` up to `most` tokens that follow a match. `goes_on`: the end of the index is
  // the end of the text that was searched for, so that the copy continues with its own beginning; a
  // text that repeats itself is copied round and round.
  void following(const Match& match, int64_t most, bool goes_on, std::vector<TokenId>& out) const;

 private:
  static constexpr TokenId kEnd = -1;

  [[nodiscard]] size_t slot(int64_t position) const {
    return static_cast<size_t>(position) & (tokens_.size() - 1);
  }

  [[nodiscard]] TokenId token(int64_t position) const { return tokens_[slot(position)]; }

  [[nodiscard]] bool is_remembered(int64_t position) const {
    return position >= 0 && position >= size_ - static_cast<int64_t>(tokens_.size());
  }

  // The latest position whose last tokens may be those of `tokens`, or one that is not remembered.
  [[nodiscard]] int64_t first_candidate(std::span<const TokenId> tokens) const;

  // How many tokens up to `position` are those at the end of `tokens`, at most kMaxMatch.
  [[nodiscard]] int64_t length_at(int64_t position, std::span<const TokenId> tokens) const;

  [[nodiscard]] size_t bucket(TokenId first, TokenId second, TokenId third) const;
  void grow();
  void link(int64_t position);

  size_t capacity_;              // size of each of the arrays below
  std::vector<TokenId> tokens_;  // indexed by slot
  // Indexed by slot: the previous position after the same tokens, or -1.
  std::vector<int64_t> previous_;
  std::vector<int64_t> latest_;  // indexed by bucket
  int64_t size_ = 0;             // tokens appended so far
};

}  // namespace heddle::speculative
