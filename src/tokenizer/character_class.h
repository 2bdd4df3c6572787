// SPDX-License-Identifier: Apache-2.0
// Unicode properties of single characters, as tokenizer files mean them.
#pragma once

#include <cstddef>
#include <string_view>

namespace heddle::tokenizer {

[[nodiscard]] bool is_white_space(char32_t code_point);     // the White_Space property
[[nodiscard]] bool is_word_character(char32_t code_point);  // letters, marks, numbers, connectors
[[nodiscard]] bool is_mark(char32_t code_point);            // general category M

// The last character of a valid, non-empty text.
[[nodiscard]] char32_t last_code_point(std::string_view text);

// How many bytes of white space a valid text starts or ends with.
[[nodiscard]] size_t leading_white_space(std::string_view text);
[[nodiscard]] size_t trailing_white_space(std::string_view text);

}  // namespace heddle::tokenizer
