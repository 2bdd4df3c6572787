// SPDX-License-Identifier: Apache-2.0
// Makes text of clients and files safe for log lines and messages.
//
// Threading: free functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

// Length in bytes of the UTF-8 character at the beginning of `text`; 0 if there is none.
[[nodiscard]] size_t utf8_character_length(std::string_view text);

// Replaces control characters and bytes that are not UTF-8 by '?'. Longer text is cut after a whole
// character.
[[nodiscard]] std::string printable(std::string_view text, size_t max_bytes);

}  // namespace heddle
