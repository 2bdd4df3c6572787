// SPDX-License-Identifier: Apache-2.0
// The tokens with which a model that was trained to fill the gap between two texts delimits them.
//
// Threading: a plain value and a function without state.
#pragma once

#include <optional>

#include <heddle/request.h>

namespace heddle::tokenizer {
class Tokenizer;
}  // namespace heddle::tokenizer

namespace heddle::server {

// The tokens that delimit the parts of a prompt for the text between two given texts.
struct InfillMarks {
  TokenId prefix = 0;                  // token that precedes the text before the gap
  TokenId suffix = 0;                  // token that precedes the text after the gap
  std::optional<TokenId> middle = {};  // before the answer; none: the answer follows the last text
  bool suffix_first = false;
};

// The marks of the first known family whose marks are all in the vocabulary. None if a tokenizer
// puts a blank before every text, because a text after a mark would begin with that blank.
[[nodiscard]] std::optional<InfillMarks> find_infill_marks(const tokenizer::Tokenizer& tokenizer);

}  // namespace heddle::server
