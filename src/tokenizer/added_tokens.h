// SPDX-License-Identifier: Apache-2.0
// Added tokens: texts such as <|im_start|> that are one token wherever they occur, whatever the
// merges say. AddedTokens lists them, AddedTokenMatcher finds them in a text.
//
// Threading: built by one thread, then immutable and thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

#include "tokenizer/cancellation.h"

namespace heddle::tokenizer {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // matches only if no letter or digit precedes or follows
  bool lstrip = false;       // the match includes white space before the token
  bool rstrip = false;       // the match includes white space after the token
  bool normalized = false;   // matched in the normalised text instead of the raw text
  bool special = false;      // control token: decode() omits it with skip_special_tokens
};

class AddedTokens {
 public:
  // Adds a token. If the same token is added twice, the flags of the first are kept. Error:
  // kDataLoss if the content is empty, or if its id or content belongs to another token.
  Status add(AddedToken token);

  [[nodiscard]] const AddedToken* find(TokenId id) const;
  [[nodiscard]] const AddedToken* find(std::string_view content) const;

  [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }

  // The largest id plus one; 0 without tokens.
  [[nodiscard]] int64_t end_id() const { return end_id_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  int64_t end_id_ = 0;
};

// Finds added tokens in a text: at each point the leftmost match, and of several there the longest.
// Cost: a table look-up per byte where no token starts, O(token length * log tokens) where one may.
class AddedTokenMatcher {
 public:
  // Receives a part of the text; returns false to stop.
  using TextFunction = std::function<bool(std::string_view text)>;
  using TokenFunction = std::function<bool(TokenId id)>;

  // `spelling` is the text to search for: the content, normalised if the token is. Call finish()
  // after the last add().
  void add(const AddedToken& token, std::string spelling);
  void finish();

  // Calls `function(spelling)` for each spelling that is searched for.
  template <typename Function>
  void for_each_spelling(Function function) const {
    for (const Pattern& pattern : patterns_) function(std::string_view(pattern.spelling));
  }

  // Calls one of two functions for each part of `text` (valid UTF-8), in order; parts are not
  // empty. Without `parse_special`, special tokens are plain text and other added tokens are still
  // found. Returns false if a function or `poll` ended the call early.
  // NOLINTNEXTLINE(modernize-use-nodiscard): callers that never end it need no answer
  bool split(std::string_view text, bool parse_special, CancellationPoll& poll,
             const TextFunction& on_text, const TokenFunction& on_token) const;

 private:
  struct Pattern {
    std::string spelling;
    AddedToken token;
  };

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    const Pattern* pattern = nullptr;
  };

  struct Bucket {  // the patterns that start with the same byte
    uint32_t begin = 0;
    uint32_t end = 0;
  };

  // The next match at or after `start`; nullopt if there is none, or if the call is cancelled.
  [[nodiscard]] std::optional<Match> find(std::string_view text, size_t start,
                                          CancellationPoll& poll) const;
  [[nodiscard]] const Pattern* longest_at(std::string_view text) const;

  std::vector<Pattern> patterns_;  // sorted by spelling
  std::array<Bucket, 256> buckets_{};
};

}  // namespace heddle::tokenizer
