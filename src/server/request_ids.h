// SPDX-License-Identifier: Apache-2.0
// Ids of requests that come without one. An id is also the right to abort its request, so no client
// may be able to guess another's: every id is 128 fresh bits of the system's random source.
//
// Threading: a free function without state.
#pragma once

#include <string>
#include <string_view>

namespace heddle::server {

// `prefix` and 32 hexadecimal digits. Cost: one system call.
[[nodiscard]] std::string new_request_id(std::string_view prefix);

}  // namespace heddle::server
