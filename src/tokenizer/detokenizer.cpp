// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/detokenizer.h"

#include "tokenizer/utf8.h"

namespace heddle::tokenizer {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer,
                                               DetokenizeOptions options)
    : tokenizer_(tokenizer),
      skip_special_tokens_(options.skip_special_tokens),
      strip_space_(options.at_text_start && tokenizer.strips_leading_space()) {}

std::string IncrementalDetokenizer::push(TokenId id) {
  tokenizer_.append_token_bytes(id, skip_special_tokens_, pending_);
  if (strip_space_ && !pending_.empty()) {
    if (pending_[0] == ' ') pending_.erase(0, 1);
    strip_space_ = false;
  }
  std::string text;
  const size_t decided = append_decided_utf8(pending_, text);
  pending_.erase(0, decided);
  return text;
}

std::string IncrementalDetokenizer::finish() {
  std::string text(pending_.empty() ? "" : kReplacementCharacter);
  pending_.clear();
  strip_space_ = false;
  return text;
}

}  // namespace heddle::tokenizer
