// SPDX-License-Identifier: Apache-2.0
// Decides whether a quote ends a string of a JSON text, or is a character that the model forgot to
// escape: {"say": "the "big" one"}. The text after the quote decides. In valid JSON every string
// ends where JSON says.
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <string_view>

#include "parsers/marker_search.h"

namespace heddle::parsers {

// Where a string value is in the JSON text.
struct StringContext {
  bool in_list = false;   // true: an item of a list; false: a member of an object
  size_t num_levels = 1;  // number of open objects and lists around the string
};

// Whether the quote before `behind` ends the string; kMore if more text is needed to decide. With
// `at_end` no more text comes, and the result is not kMore. Cost: O(kMaxLookahead).
[[nodiscard]] Match quote_ends_string(std::string_view behind, const StringContext& context,
                                      bool at_end);

// Whether `text` begins with a mark that ends a call; kMore if more text is needed to decide.
[[nodiscard]] Match begins_call_mark(std::string_view text);

// The most bytes examined after a quote. If they do not decide, the quote ends its string.
inline constexpr size_t kMaxLookahead = 256;

}  // namespace heddle::parsers
