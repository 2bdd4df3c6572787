// SPDX-License-Identifier: Apache-2.0
// IncrementalDetokenizer converts a stream of tokens to a stream of text. A token may contain any
// part of a character; the output is always complete UTF-8.
//
// Threading: confined to the thread that streams one sequence; the tokenizer must outlive it.
// Invariant: all pushes and finish(), concatenated, equal Tokenizer::decode() of all tokens.
// Cost: O(bytes of the token); at most 3 bytes are held back.
#pragma once

#include <string>

#include <heddle/request.h>

#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

struct DetokenizeOptions {
  bool skip_special_tokens = true;
  // False if the tokens continue earlier text: the first SentencePiece word then keeps its leading
  // space.
  bool at_text_start = true;
};

class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer, DetokenizeOptions options = {});

  // Returns the text that this token completes; may be empty.
  [[nodiscard]] std::string push(TokenId id);

  // Returns the rest: empty, or U+FFFD if the last character is incomplete. Afterwards the
  // detokenizer can be used for further tokens, as in the middle of a text.
  [[nodiscard]] std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool strip_space_;     // the next byte is the first of the text; if it is a space, it is dropped
  std::string pending_;  // bytes of an incomplete character
};

}  // namespace heddle::tokenizer
