// SPDX-License-Identifier: Apache-2.0
// Questions and answers that the small model's reference gave, as the model reads them: text to
// force on it where a test wants real distributions.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/request.h>

namespace heddle::testing {

// Tokens of `per_file` turns at most, by file: story, recall, skill, math.
std::vector<std::vector<std::vector<TokenId>>> recorded_turns(int64_t per_file);

}  // namespace heddle::testing
