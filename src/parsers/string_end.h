// SPDX-License-Identifier: Apache-2.0
// Decides whether a quote ends a string of a JSON text, or is a character that the model forgot to
// escape: {"say": "the "big" one"}. The text behind the quote decides. In a text that is JSON every
// string ends where JSON ends it.
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <string_view>

#include "parsers/marker_search.h"

namespace heddle::parsers {

// The context of a string value.
struct StringContext {
  bool in_list = false;   // otherwise an object's member
  size_t num_levels = 1;  // open objects and lists around it
};

// Whether the quote before `behind` ends the string; kMore if more text is needed to decide. With
// `at_end` no more text comes, and the answer is not kMore. Cost: O(kMaxLookahead).
[[nodiscard]] Match quote_ends_string(std::string_view behind, const StringContext& context,
                                      bool at_end);

// Whether `text` begins with a mark that ends a call; kMore if it takes more text to tell.
[[nodiscard]] Match begins_call_mark(std::string_view text);

// Bytes examined after a quote. If these do not decide, it ends its string.
inline constexpr size_t kMaxLookahead = 256;

}  // namespace heddle::parsers
