// SPDX-License-Identifier: Apache-2.0
#include "core/printable.h"

namespace heddle {

std::string printable(std::string_view text, size_t max_bytes) {
  std::string result(text.substr(0, max_bytes));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return result;
}

}  // namespace heddle
