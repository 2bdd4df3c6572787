// SPDX-License-Identifier: Apache-2.0
#include "core/printable.h"

#include <algorithm>

namespace heddle {

size_t utf8_character_length(std::string_view text) {
  const auto at = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t i) { return (at(i) & 0xC0) == 0x80; };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    const bool overlong = first == 0xE0 && at(1) < 0xA0;
    const bool surrogate = first == 0xED && at(1) >= 0xA0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool overlong = first == 0xF0 && at(1) < 0x90;
    const bool too_large = first == 0xF4 && at(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string result;
  while (!text.empty()) {
    const size_t length = utf8_character_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    const auto last = static_cast<unsigned char>(character.back());
    const bool is_control = length == 1 ? last < 0x20 || last == 0x7F
                                        : length == 2 && character[0] == '\xC2' && last < 0xA0;
    const std::string_view shown = length == 0 || is_control ? "?" : character;
    if (result.size() + shown.size() > max_bytes) break;
    result += shown;
    text.remove_prefix(character.size());
  }
  return result;
}

}  // namespace heddle
