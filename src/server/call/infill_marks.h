// SPDX-License-Identifier: Apache-2.0
// The tokens with which a model that was trained to fill the gap between two texts marks them.
//
// Threading: a value and a function without state.
#pragma once

#include <optional>

#include <heddle/request.h>

namespace heddle::tokenizer {
class Tokenizer;
}  // namespace heddle::tokenizer

namespace heddle::server {

// The tokens that mark the parts of a prompt for what stands between two texts.
struct InfillMarks {
  TokenId prefix = 0;                  // stands before the text ahead of the gap
  TokenId suffix = 0;                  // before the text behind it
  std::optional<TokenId> middle = {};  // before the answer; none: it follows the last text
  bool suffix_first = false;
};

// The marks of the first family known here of which the vocabulary has all. None also where a
// tokenizer puts a blank before every text: a text after a mark would begin with it.
[[nodiscard]] std::optional<InfillMarks> find_infill_marks(const tokenizer::Tokenizer& tokenizer);

}  // namespace heddle::server
