// SPDX-License-Identifier: Apache-2.0
#include "chat/string_literal.h"

#include <charconv>

#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace heddle::chat {

namespace {

Status append_code_point(uint32_t c, std::string& out) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
    return invalid_argument(fmt::format("the escape for U+{:04X} is not a character", c));
  }
  tokenizer::append_utf8(static_cast<char32_t>(c), out);
  return {};
}

// Reads exactly `count` hexadecimal digits at `offset`, which moves behind them.
Status append_hex(std::string_view text, size_t& offset, size_t count, std::string& out) {
  const std::string_view digits = text.substr(offset, count);
  uint32_t value = 0;
  const auto [stop, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() < count || error != std::errc() || stop != digits.data() + digits.size()) {
    return invalid_argument(
        fmt::format("an escape in the string needs {} hexadecimal digits", count));
  }
  offset += count;
  return append_code_point(value, out);
}

}  // namespace

Result<std::string> unescape_string(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char c = text[i++];
    if (c != '\\' || i == text.size()) {
      out += c;
      continue;
    }
    const char kind = text[i++];
    switch (kind) {
      case '\n':
        break;  // a line continued in the source
      case '\\':
      case '\'':
      case '"':
        out += kind;
        break;
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'v':
        out += '\v';
        break;
      case 'x':
        HEDDLE_RETURN_IF_ERROR(append_hex(text, i, 2, out));
        break;
      case 'u':
        HEDDLE_RETURN_IF_ERROR(append_hex(text, i, 4, out));
        break;
      case 'U':
        HEDDLE_RETURN_IF_ERROR(append_hex(text, i, 8, out));
        break;
      case 'N':
        return invalid_argument("the escape \\N{name} is not supported; write \\uXXXX instead");
      default: {
        if (kind < '0' || kind > '7') {
          out += '\\';
          --i;  // the character behind an unknown escape may be several bytes long
          break;
        }
        uint32_t value = static_cast<uint32_t>(kind - '0');
        for (int digits = 1; digits < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7';
             ++digits) {
          value = value * 8 + static_cast<uint32_t>(text[i++] - '0');
        }
        HEDDLE_RETURN_IF_ERROR(append_code_point(value, out));
      }
    }
  }
  return out;
}

}  // namespace heddle::chat
