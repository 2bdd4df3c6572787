// SPDX-License-Identifier: Apache-2.0
// Whether two tokenizers give their ids the same meaning, so that one model can read the tokens of
// another.
//
// Threading: a pure function. Cost: two strings for each id.
#pragma once

#include <heddle/status.h>

#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

// Ids that only one of them has do not count. Error: kInvalidArgument, naming the first id whose
// tokens differ and both of them.
[[nodiscard]] Status check_same_tokens(const Tokenizer& tokenizer, const Tokenizer& other);

}  // namespace heddle::tokenizer
