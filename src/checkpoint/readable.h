// SPDX-License-Identifier: Apache-2.0
// Makes text from a file fit for an error message: quoted, cut at 120 bytes, and with every byte
// outside printable ASCII replaced by '?'.
#pragma once

#include <string>
#include <string_view>

namespace heddle::checkpoint {

[[nodiscard]] inline std::string readable(std::string_view text) {
  constexpr size_t kMaxBytes = 120;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) out += (c >= ' ' && c <= '~') ? c : '?';
  if (text.size() > kMaxBytes) out += "...";
  return out + '"';
}

}  // namespace heddle::checkpoint
