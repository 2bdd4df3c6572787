// SPDX-License-Identifier: Apache-2.0
// The options that people know from other servers, where Heddle has another name for them or none.
#pragma once

#include <string>
#include <string_view>

namespace heddle::tools {

// "it is --context-length here", or "" for what no well-known server has. `option` begins with its
// dashes.
[[nodiscard]] std::string advice_on_familiar_option(std::string_view option);

}  // namespace heddle::tools
