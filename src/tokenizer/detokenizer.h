// SPDX-License-Identifier: Apache-2.0
// IncrementalDetokenizer turns a stream of tokens into a stream of text. A token may hold any part
// of a character; what comes out is always complete UTF-8.
//
// Threading: confined to the thread that streams one sequence; the tokenizer must outlive it.
// Invariant: all pushes and finish(), concatenated, equal Tokenizer::decode() of all tokens.
// Cost: O(bytes of the token); at most 3 bytes are kept back.
#pragma once

#include <string>

#include <heddle/request.h>

#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

struct DetokenizeOptions {
  bool skip_special_tokens = true;
  // False if the tokens continue earlier text: a SentencePiece word then keeps its leading space.
  bool at_text_start = true;
};

class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer, DetokenizeOptions options = {});

  // The text this token completes; may be empty.
  [[nodiscard]] std::string push(TokenId id);

  // The bytes kept back: empty, or U+FFFD for a character that never came to its end. Starts afresh
  // in the middle of a text.
  [[nodiscard]] std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool strip_space_;     // the next byte is the first of a text whose first space goes
  std::string pending_;  // bytes not yet out
};

}  // namespace heddle::tokenizer
