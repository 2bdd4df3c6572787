// SPDX-License-Identifier: Apache-2.0
// The error for a thread that the system did not start.
//
// Threading: a free function without state.
#pragma once

#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include <heddle/status.h>

namespace heddle {

// kResourceExhausted, with the options and shell limits that the user can change: usually the
// memory of the pools has used up a limit of the shell. `purpose` names the thread: "for the
// engine".
inline Status no_thread(std::string_view purpose, const std::system_error& error) {
  return resource_exhausted(
      fmt::format("no thread {}: {}; lower --memory-fraction or set --max-total-tokens, or raise "
                  "the shell's limits of memory (`ulimit -v`) and threads (`ulimit -u`)",
                  purpose, error.what()));
}

}  // namespace heddle
