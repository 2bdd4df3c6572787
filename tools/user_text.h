// SPDX-License-Identifier: Apache-2.0
// Text that a user typed or piped in.
#pragma once

#include <string_view>

#include <heddle/status.h>

namespace heddle::tools {

// Templates are made of characters, and bytes in another encoding are none. `what` is the text in
// the user's terms: "the message". Error: kInvalidArgument, naming it, the byte and the remedy.
Status check_utf8(std::string_view what, std::string_view text);

}  // namespace heddle::tools
