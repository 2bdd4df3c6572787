// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/character_class.h"

#include <utf8proc.h>

#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

utf8proc_category_t category_of(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// The bytes of the last character.
std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

}  // namespace

bool is_white_space(char32_t code_point) {
  if ((code_point >= 0x09 && code_point <= 0x0D) || code_point == ' ') return true;
  if (code_point < 0x80) return false;
  if (code_point == 0x85) return true;
  const utf8proc_category_t category = category_of(code_point);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_word_character(char32_t code_point) {
  switch (category_of(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_mark(char32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

char32_t last_code_point(std::string_view text) {
  return decode_utf8(last_character(text)).code_point;
}

size_t leading_white_space(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Unit unit = decode_utf8(text.substr(length));
    if (!is_white_space(unit.code_point)) break;
    length += unit.length;
  }
  return length;
}

size_t trailing_white_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && is_white_space(last_code_point(text.substr(0, end)))) {
    end -= last_character(text.substr(0, end)).size();
  }
  return text.size() - end;
}

}  // namespace heddle::tokenizer
