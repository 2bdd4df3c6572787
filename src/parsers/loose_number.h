// SPDX-License-Identifier: Apache-2.0
// Numbers in other notations than JSON's: 03, +3, .5, 5., 1_000, 0x1F, 0b11, 0o17.
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::parsers {

// The number in JSON's notation, whatever its size; none if `text` is not a number. Integers with a
// base other than ten may have up to 64 bits.
[[nodiscard]] std::optional<std::string> loose_number(std::string_view text);

}  // namespace heddle::parsers
