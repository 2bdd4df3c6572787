// SPDX-License-Identifier: Apache-2.0
// Added tokens: texts such as <|im_start|> that are one token wherever they stand, whatever the
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
  bool single_word = false;  // not next to a letter or digit
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // matched in the normalised text, not the raw one
  bool special = false;      // control token: skip_special_tokens omits it
};

class AddedTokens {
 public:
  // Adding the same token twice keeps the flags of the first. Error: kDataLoss when the content is
  // empty, or its id or content belongs to another token.
  Status add(AddedToken token);

  [[nodiscard]] const AddedToken* find(TokenId id) const;
  [[nodiscard]] const AddedToken* find(std::string_view content) const;

  [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }

  // One more than the largest id; 0 without tokens.
  [[nodiscard]] int64_t end_id() const { return end_id_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  int64_t end_id_ = 0;
};

// Cuts the leftmost, then longest tokens out of a text.
// Cost: a table look-up a byte where no token starts, O(token length * log tokens) where one may.
class AddedTokenMatcher {
 public:
  // False: the rest is not needed.
  using TextFunction = std::function<bool(std::string_view text)>;
  using TokenFunction = std::function<bool(TokenId id)>;

  // `spelling` is what to look for: the content, normalised if the token is. Then finish().
  void add(const AddedToken& token, std::string spelling);
  void finish();

  // Calls `function(spelling)` for every spelling that is looked for.
  template <typename Function>
  void for_each_spelling(Function function) const {
    for (const Pattern& pattern : patterns_) function(std::string_view(pattern.spelling));
  }

  // Calls one function or the other for the parts of `text` (valid UTF-8) in order; no empty texts.
  // Without `parse_special` the special tokens are plain text, the other added tokens are not.
  // False: a function or `poll` ended it.
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

  struct Bucket {  // the patterns that start with one byte
    uint32_t begin = 0;
    uint32_t end = 0;
  };

  // nullopt when there is no match, and when cancelled.
  [[nodiscard]] std::optional<Match> find(std::string_view text, size_t start,
                                          CancellationPoll& poll) const;
  [[nodiscard]] const Pattern* longest_at(std::string_view text) const;

  std::vector<Pattern> patterns_;  // sorted by spelling
  std::array<Bucket, 256> buckets_{};
};

}  // namespace heddle::tokenizer
