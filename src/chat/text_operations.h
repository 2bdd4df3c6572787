// SPDX-License-Identifier: Apache-2.0
// Operations on valid UTF-8 text: code points, the character classes and case mappings of Python's
// str, and the stripping, splitting, replacing and padding that string methods and filters share.
//
// Case mappings are Unicode's simple ones, and the expansions of German sharp s and the Latin
// ligatures. Other expansions (a dotted capital I, Greek with iota subscript) and the final form of
// sigma are not supported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

[[nodiscard]] size_t count_code_points(std::string_view text);

// Returns the code point at `offset` and advances `offset` past it. `offset` must be at a character
// of valid UTF-8.
char32_t next_code_point(std::string_view text, size_t& offset);
// Returns the code point that ends at `offset` and moves `offset` to its beginning. `offset` must
// not be 0.
char32_t previous_code_point(std::string_view text, size_t& offset);

// The byte offset of code point `index`, or the size of `text` if it has fewer code points.
[[nodiscard]] size_t offset_of_code_point(std::string_view text, size_t index);

[[nodiscard]] bool is_space(char32_t c);      // Python's str.isspace for one character
[[nodiscard]] bool is_line_end(char32_t c);   // whether Python's str.splitlines breaks after the
                                              // character
[[nodiscard]] bool is_printable(char32_t c);  // Python's str.isprintable for one character
[[nodiscard]] bool is_alphabetic(char32_t c);
[[nodiscard]] bool is_decimal(char32_t c);
[[nodiscard]] bool is_numeric(char32_t c);
[[nodiscard]] bool is_upper(char32_t c);
[[nodiscard]] bool is_lower(char32_t c);
[[nodiscard]] bool is_cased(char32_t c);
// Whether the character is allowed in a name of the template language.
[[nodiscard]] bool is_word(char32_t c);

void append_upper(char32_t c, std::string& out);
void append_lower(char32_t c, std::string& out);
void append_title(char32_t c, std::string& out);

[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);
// The text with its first character in title case and the rest in lower case.
[[nodiscard]] std::string capitalized(std::string_view text);

// `text` without the characters of `characters` (white space if absent) at its left and right ends.
[[nodiscard]] std::string_view stripped(std::string_view text,
                                        std::optional<std::string_view> characters, bool left,
                                        bool right);

// The first position of `wanted` from `from` on, or npos. Linear time for any texts.
[[nodiscard]] size_t find_text(std::string_view text, std::string_view wanted, size_t from);
// Counts the cost of a search from the right, which is not linear: each position may cost the
// length of `wanted`.
Status charge_search(Budget* budget, std::string_view text, std::string_view wanted);

// Splits at most `max_splits` times (without limit if negative), from the left or from the right.
// Without a separator the text is split at runs of white space and has no empty parts at its ends.
[[nodiscard]] std::vector<std::string_view> split_at(std::string_view text,
                                                     std::string_view separator, int64_t max_splits,
                                                     bool from_right);
[[nodiscard]] std::vector<std::string_view> split_at_spaces(std::string_view text,
                                                            int64_t max_splits, bool from_right);
[[nodiscard]] std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Replaces the first `count` occurrences (all if negative). An empty `from` occurs between all
// characters.
Result<Value> replaced(Budget* budget, std::string_view text, std::string_view from,
                       std::string_view to, int64_t count);

// `text` with `left` copies of `fill` before it and `right` copies after it.
Result<Value> padded(Budget* budget, std::string_view text, int64_t left, int64_t right,
                     std::string_view fill);

// Python's str.title: letters after a non-letter in title case, other letters in lower case.
[[nodiscard]] std::string title_case(std::string_view text);

// A list of strings. Error: the budget is exceeded.
Result<Value> list_of_texts(Budget* budget, const std::vector<std::string_view>& parts);

}  // namespace heddle::chat
