// SPDX-License-Identifier: Apache-2.0
// Text of clients in log lines and messages.
//
// Threading: free functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

// Control characters become '?', and longer text is cut.
[[nodiscard]] std::string printable(std::string_view text, size_t max_bytes);

}  // namespace heddle
