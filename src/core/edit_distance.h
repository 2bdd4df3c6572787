// SPDX-License-Identifier: Apache-2.0
// The edit distance of two words, to suggest the word that the user may have meant.
//
// Threading: a free function without state.
#pragma once

#include <cstddef>
#include <string_view>

namespace heddle {

// Number of edits that turn one word into the other: insert, delete, replace, swap two neighbours.
// Cost: O(product of the sizes).
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace heddle
