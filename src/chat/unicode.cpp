// SPDX-License-Identifier: Apache-2.0
#include "chat/unicode.h"

#include <utf8proc.h>

#include "tokenizer/utf8.h"

namespace heddle::chat {

namespace {

using tokenizer::append_utf8;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// The upper-case form of characters that become several, or nothing.
std::string_view upper_expansion(char32_t c) {
  switch (c) {
    case 0xDF:
      return "SS";
    case 0x149:
      return "\xCA\xBCN";
    case 0xFB00:
      return "FF";
    case 0xFB01:
      return "FI";
    case 0xFB02:
      return "FL";
    case 0xFB03:
      return "FFI";
    case 0xFB04:
      return "FFL";
    case 0xFB05:
    case 0xFB06:
      return "ST";
    default:
      return {};
  }
}

}  // namespace

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

char32_t next_code_point(std::string_view text, size_t& offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  if (lead < 0x80) {
    ++offset;
    return lead;
  }
  const tokenizer::Utf8Unit unit = tokenizer::decode_utf8(text.substr(offset));
  offset += unit.length == 0 ? 1 : unit.length;
  return unit.code_point;
}

char32_t previous_code_point(std::string_view text, size_t& offset) {
  do {
    --offset;
  } while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  size_t from = offset;
  return next_code_point(text, from);
}

size_t offset_of_code_point(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += tokenizer::utf8_length(text[offset]);
  return offset < text.size() ? offset : text.size();
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  if (c == 0x85) return true;
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_alphabetic(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_word(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  return is_alphabetic(c) || is_numeric(c);
}

void append_upper(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    return;
  }
  if (const std::string_view expansion = upper_expansion(c); !expansion.empty()) {
    out += expansion;
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void append_lower(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

void append_title(char32_t c, std::string& out) {
  if (const std::string_view expansion = upper_expansion(c); !expansion.empty()) {
    size_t offset = 0;
    append_utf8(next_code_point(expansion, offset), out);
    while (offset < expansion.size()) append_lower(next_code_point(expansion, offset), out);
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

std::string to_upper(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) append_upper(next_code_point(text, i), result);
  return result;
}

std::string to_lower(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) append_lower(next_code_point(text, i), result);
  return result;
}

std::string capitalized(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  size_t i = 0;
  if (i < text.size()) append_title(next_code_point(text, i), result);
  while (i < text.size()) append_lower(next_code_point(text, i), result);
  return result;
}

}  // namespace heddle::chat
