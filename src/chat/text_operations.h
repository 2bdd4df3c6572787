// SPDX-License-Identifier: Apache-2.0
// The work on text that string methods and filters share: stripping, splitting, replacing, padding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// `text` without the characters of `characters` (white space when absent) at its ends.
[[nodiscard]] std::string_view stripped(std::string_view text,
                                        std::optional<std::string_view> characters, bool left,
                                        bool right);

// Where `wanted` first stands at or behind `from`, or npos. Linear whatever the texts are.
[[nodiscard]] size_t find_text(std::string_view text, std::string_view wanted, size_t from);
// Pays for a search from the right, which is not: every position may cost the length of `wanted`.
Status charge_search(Budget* budget, std::string_view text, std::string_view wanted);

// At most `max_splits` splits (any number when negative), from the left or from the right.
// Without a separator text is split at runs of white space and has no empty parts at its ends.
[[nodiscard]] std::vector<std::string_view> split_at(std::string_view text,
                                                     std::string_view separator, int64_t max_splits,
                                                     bool from_right);
[[nodiscard]] std::vector<std::string_view> split_at_spaces(std::string_view text,
                                                            int64_t max_splits, bool from_right);
[[nodiscard]] std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Replaces the first `count` occurrences (all when negative); an empty `from` stands between all
// characters.
Result<Value> replaced(Budget* budget, std::string_view text, std::string_view from,
                       std::string_view to, int64_t count);

// `text` between `left` and `right` copies of `fill`.
Result<Value> padded(Budget* budget, std::string_view text, int64_t left, int64_t right,
                     std::string_view fill);

// str.title: every letter behind a non-letter in title case, the others in lower case.
[[nodiscard]] std::string title_case(std::string_view text);

// A list of strings. Error: the budget.
Result<Value> list_of_texts(Budget* budget, const std::vector<std::string_view>& parts);

}  // namespace heddle::chat
