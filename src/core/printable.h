// SPDX-License-Identifier: Apache-2.0
// Text of clients and files in log lines and messages.
//
// Threading: free functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

// The length of the UTF-8 character that `text` begins with, or 0 when it begins with none.
[[nodiscard]] size_t utf8_character_length(std::string_view text);

// Control characters and bytes that are not UTF-8 become '?'. Longer text is cut after a character.
[[nodiscard]] std::string printable(std::string_view text, size_t max_bytes);

}  // namespace heddle
