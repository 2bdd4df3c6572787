// SPDX-License-Identifier: Apache-2.0
// Finds missing quotes of keys and strings in a JSON object whose keys are known: {"city": "Paris,
// "days": 3}, {"city: "Paris"}, {city": Paris"}. Also finds a missing quote at the end of a call's
// last string, whatever the keys: {"city": "Paris}}</tool_call>. Never finds one in valid JSON.
//
// Threading: free functions without state. Cost: O(kMaxLookahead), see string_end.h.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "parsers/answer_delta.h"
#include "parsers/marker_search.h"
#include "parsers/string_end.h"

namespace heddle::parsers {

// Whether the object may have a member of this key here.
using KeyTest = std::function<bool(std::string_view key)>;

// All functions here return kMore if more text is needed to decide. With `at_end` no more text
// comes, and they do not return kMore.

// Whether `text` begins with a comma and the key of a member. The key's opening quote is `quote`;
// without `quote` it may be either kind or missing.
[[nodiscard]] Match begins_next_member(std::string_view text, const KeyTest& is_key,
                                       std::optional<char> quote, bool at_end);

// Whether the key that was read so far ends before `text`, which begins with a colon or with a
// quote of the other kind.
[[nodiscard]] Match key_ends_before(std::string_view text, std::string_view key,
                                    const KeyTest& is_key, bool at_end);

// Whether `text`, at a position where a key must be, begins with a key that lacks its opening
// quote.
[[nodiscard]] Match begins_bare_key(std::string_view text, const KeyTest& is_key, bool at_end);

// Whether `text`, at a position where a member's value must be, begins with a string that lacks its
// opening quote. `num_levels` is the number of open objects.
[[nodiscard]] Match begins_bare_string(std::string_view text, const KeyTest& is_key,
                                       size_t num_levels, bool at_end);

// Whether the open string ends before `text`, together with the call: brackets close everything
// open, then a mark ends the call, or the answer stops. If a quote follows the mark, the brackets
// and the mark belong to the string. In an answer that was cut, such a quote might have followed.
[[nodiscard]] Match ends_last_string(std::string_view text, const StringContext& context,
                                     char quote, TextEnd end);

}  // namespace heddle::parsers
