// SPDX-License-Identifier: Apache-2.0
#include "parsers/loose_number.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "core/exact_json.h"

namespace heddle::parsers {
namespace {

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Removes each '_' between two digits.
std::string without_joints(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool joins = text[i] == '_' && i > 0 && i + 1 < text.size() &&
                       is_hex_digit(text[i - 1]) && is_hex_digit(text[i + 1]);
    if (!joins) digits += text[i];
  }
  return digits;
}

int base_of(char letter) {
  switch (letter) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 10;
  }
}

}  // namespace

std::optional<std::string> loose_number(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || std::string_view(".0123456789").find(text.front()) == text.npos) {
    return std::nullopt;
  }
  const std::string digits = without_joints(text);
  text = digits;
  std::string json = is_negative ? "-" : "";
  const int base = text.size() > 2 && text[0] == '0' ? base_of(text[1]) : 10;
  if (base != 10) {
    uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(text.data() + 2, text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return json + std::to_string(value);
  }
  const size_t mantissa_size = std::min(text.find_first_of("eE"), text.size());
  const std::string_view mantissa = text.substr(0, mantissa_size);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string_view whole = mantissa.substr(0, point);
  if (whole.empty() && point + 1 >= mantissa.size()) return std::nullopt;  // the text has no digit
  if (whole.empty()) whole = "0";
  json += whole.substr(std::min(whole.find_first_not_of('0'), whole.size() - 1));
  json += mantissa.substr(point);
  if (mantissa.ends_with('.')) json += '0';
  json += text.substr(mantissa_size);
  const bool looks_so = json.find_first_not_of("+-.0123456789eE") == std::string::npos;
  return looks_so && parse_exact_json(json).ok() ? std::optional(std::move(json)) : std::nullopt;
}

}  // namespace heddle::parsers
