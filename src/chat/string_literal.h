// SPDX-License-Identifier: Apache-2.0
// Escapes in the template language's string literals, which are Python's.
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle::chat {

// Replaces \n, \t, \\, \', \xHH, \uXXXX, \UXXXXXXXX, octal and the other escapes; an unknown one
// stays as it is. Error: kInvalidArgument for a cut-off escape, a \N{name} or a code point UTF-8
// cannot hold.
Result<std::string> unescape_string(std::string_view text);

}  // namespace heddle::chat
