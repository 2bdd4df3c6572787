// SPDX-License-Identifier: Apache-2.0
// TextIndex: finds earlier occurrences of the end of a text. It stores the last appended tokens in
// a ring, and for each position the previous one that ends with the same kMinMatch tokens. A search
// follows that chain, as LZ77 does (Ziv and Lempel, "A universal algorithm for sequential data
// compression", 1977).
//
// Threading: thread-confined. Cost: append() O(1) on average; a search makes at most kMaxCandidates
// comparisons of kMaxMatch tokens. Memory: 20 bytes per stored token, in powers of two.
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

  // Stores at least the last `num_tokens` tokens. Allocates memory as it is needed.
  explicit TextIndex(int64_t num_tokens);

  // Appends a token, which must be >= 0, to the text.
  void append(TokenId token);

  // Ends the text: no match, and no continuation of a match, spans the tokens before and after this
  // call.
  void end_text();

  // An earlier occurrence of the last tokens of a text.
  struct Match {
    int64_t length = 0;  // number of equal tokens, at most kMaxMatch; 0: less than kMinMatch
    int64_t next = 0;    // position after the match, for following()
  };

  // Finds earlier occurrences of the end of `tokens`, each continued by a different token. Replaces
  // `out` by up to `most` matches, the longest first, the most recent first among equals. An
  // occurrence at the end of the index or of a text has no continuation and is not reported.
  void find(std::span<const TokenId> tokens, size_t most, std::vector<Match>& out) const;

  // Appends to `out` up to `most` tokens that follow a match. `goes_on`: the index ends with the
  // text that was searched for, so the copy continues with the tokens just copied; a text that
  // repeats itself is copied over and over.
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

  // The latest position that may end with the last tokens of `tokens`, or one that is no longer
  // stored.
  [[nodiscard]] int64_t first_candidate(std::span<const TokenId> tokens) const;

  // How many tokens up to `position` equal those at the end of `tokens`, at most kMaxMatch.
  [[nodiscard]] int64_t length_at(int64_t position, std::span<const TokenId> tokens) const;

  [[nodiscard]] size_t bucket(TokenId first, TokenId second, TokenId third) const;
  void grow();
  void link(int64_t position);

  size_t capacity_;              // size that tokens_ and previous_ may grow to
  std::vector<TokenId> tokens_;  // the ring of tokens, indexed by slot()
  // Indexed by slot(): the previous position that ends with the same tokens, or -1.
  std::vector<int64_t> previous_;
  std::vector<int64_t> latest_;  // the latest position with these last tokens, indexed by bucket()
  int64_t size_ = 0;             // number of tokens appended so far
};

}  // namespace heddle::speculative
