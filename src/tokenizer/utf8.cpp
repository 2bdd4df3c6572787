// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <simdjson.h>
#include <utf8proc.h>

namespace heddle::tokenizer {

namespace {

using Kind = Utf8Unit::Kind;

// Limits of the second byte (table 3-7). They exclude overlong forms, surrogates and code points
// beyond U+10FFFF, so that a bad second byte is recognised before the third arrives.
struct Lead {
  size_t length = 0;  // number of bytes; 0: the byte cannot begin a character
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

Lead classify(unsigned char byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_low = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_high = 0x9F};
  if (byte < 0xF0) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_low = 0x90};
  if (byte == 0xF4) return {.length = 4, .second_high = 0x8F};
  if (byte < 0xF4) return {.length = 4};
  return {};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

Utf8Unit decode_utf8(std::string_view bytes) {
  if (bytes.empty()) return {};
  const auto first = static_cast<unsigned char>(bytes[0]);
  const Lead lead = classify(first);
  if (lead.length == 0) return {.kind = Kind::kIllFormed, .length = 1};
  if (lead.length == 1) return {.kind = Kind::kCodePoint, .length = 1, .code_point = first};
  auto code_point = static_cast<char32_t>(first & (0x7F >> lead.length));
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {.kind = Kind::kTruncated, .length = i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {.kind = Kind::kIllFormed, .length = i};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {.kind = Kind::kCodePoint, .length = lead.length, .code_point = code_point};
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto push = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
    push(0x80 | (code_point >> 6 & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

size_t append_decided_utf8(std::string_view bytes, std::string& out) {
  size_t done = 0;    // all bytes before this offset are in `out`
  size_t cursor = 0;  // all bytes before this offset are well formed or in `out`
  while (cursor < bytes.size()) {
    const Utf8Unit unit = decode_utf8(bytes.substr(cursor));
    if (unit.kind == Kind::kTruncated) break;
    if (unit.kind == Kind::kIllFormed) {
      out.append(bytes.substr(done, cursor - done)).append(kReplacementCharacter);
      done = cursor + unit.length;
    }
    cursor += unit.length;
  }
  out.append(bytes.substr(done, cursor - done));
  return cursor;
}

std::string replace_ill_formed_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  if (append_decided_utf8(bytes, text) < bytes.size()) text.append(kReplacementCharacter);
  return text;
}

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
