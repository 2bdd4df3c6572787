// SPDX-License-Identifier: Apache-2.0
// Code points of valid UTF-8 text, and the character classes and case mappings of Python's str.
//
// Case mappings are the simple ones of Unicode plus the expansions of German sharp s and the Latin
// ligatures; other expansions (a dotted capital I, Greek with iota subscript) and the final form of
// sigma are not made.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::chat {

[[nodiscard]] size_t count_code_points(std::string_view text);

// The code point at `offset`, which moves behind it. `offset` must be at a character of valid
// UTF-8.
char32_t next_code_point(std::string_view text, size_t& offset);
// The code point that ends at `offset`, which moves before it. `offset` must not be 0.
char32_t previous_code_point(std::string_view text, size_t& offset);

// The byte offset of code point `index`, or the size of `text` when there are fewer.
[[nodiscard]] size_t offset_of_code_point(std::string_view text, size_t index);

[[nodiscard]] bool is_space(char32_t c);      // str.isspace
[[nodiscard]] bool is_line_end(char32_t c);   // where str.splitlines breaks
[[nodiscard]] bool is_printable(char32_t c);  // str.isprintable
[[nodiscard]] bool is_alphabetic(char32_t c);
[[nodiscard]] bool is_decimal(char32_t c);
[[nodiscard]] bool is_numeric(char32_t c);
[[nodiscard]] bool is_upper(char32_t c);
[[nodiscard]] bool is_lower(char32_t c);
[[nodiscard]] bool is_cased(char32_t c);
// What may stand in a name of the template language.
[[nodiscard]] bool is_word(char32_t c);

void append_upper(char32_t c, std::string& out);
void append_lower(char32_t c, std::string& out);
void append_title(char32_t c, std::string& out);

[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);
// First character in title case, the rest in lower case.
[[nodiscard]] std::string capitalized(std::string_view text);

}  // namespace heddle::chat
