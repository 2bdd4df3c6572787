// SPDX-License-Identifier: Apache-2.0
// Finds quotes that are missing around the keys and strings of a JSON object whose keys are known:
// {"city": "Paris, "days": 3}, {"city: "Paris"}, {city": Paris"}; and at the end of a call's last
// string, whatever its keys: {"city": "Paris}}</tool_call>. No text that is JSON has one.
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

// All of these return kMore if it takes more text to tell. With `at_end` no more text comes, and
// the answer is not kMore.

// Whether `text` begins with a comma and the key of a member, whose opening quote is `quote`; with
// no `quote` it is either one or missing.
[[nodiscard]] Match begins_next_member(std::string_view text, const KeyTest& is_key,
                                       std::optional<char> quote, bool at_end);

// Whether the key that was read so far ends before `text`, which begins with a colon or a quote of
// the other kind.
[[nodiscard]] Match key_ends_before(std::string_view text, std::string_view key,
                                    const KeyTest& is_key, bool at_end);

// Whether `text`, where a key must stand, is a key without its opening quote.
[[nodiscard]] Match begins_bare_key(std::string_view text, const KeyTest& is_key, bool at_end);

// Whether `text`, where a member's value must stand, is a string without its opening quote.
// `num_levels` objects are open.
[[nodiscard]] Match begins_bare_string(std::string_view text, const KeyTest& is_key,
                                       size_t num_levels, bool at_end);

// Whether the string that is open ends before `text`, as the call does: brackets close what is
// open, and a mark ends the call, or the answer stops. A quote behind the mark that ends the string
// says that the brackets and the mark belong to the string; where the answer was cut, it may have
// been to come.
[[nodiscard]] Match ends_last_string(std::string_view text, const StringContext& context,
                                     char quote, TextEnd end);

}  // namespace heddle::parsers
