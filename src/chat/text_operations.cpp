// SPDX-License-Identifier: Apache-2.0
#include "chat/text_operations.h"

#include <algorithm>
#include <cstring>

#include <utf8proc.h>

#include "chat/value.h"
#include "tokenizer/utf8.h"

namespace heddle::chat {

namespace {

using tokenizer::append_utf8;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// The upper-case form of a character if it has several characters; otherwise empty.
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

namespace {

bool is_in_set(char32_t c, std::string_view characters) {
  for (size_t i = 0; i < characters.size();) {
    if (next_code_point(characters, i) == c) return true;
  }
  return false;
}

}  // namespace

std::string_view stripped(std::string_view text, std::optional<std::string_view> characters,
                          bool left, bool right) {
  const auto goes = [&characters](char32_t c) {
    return characters ? is_in_set(c, *characters) : is_space(c);
  };
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t after = begin;
    if (!goes(next_code_point(text, after))) break;
    begin = after;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t before = end;
    if (!goes(previous_code_point(text, before))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  // memmem instead of string_view::find, whose worst case is the product of the two lengths.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

Status charge_search(Budget* budget, std::string_view text, std::string_view wanted) {
  if (wanted.size() > text.size()) return {};
  size_t cost = 0;
  if (__builtin_mul_overflow(text.size(), wanted.size(), &cost)) cost = static_cast<size_t>(-1);
  return budget->touch(cost);
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t max_splits, bool from_right) {
  std::vector<std::string_view> parts;
  if (from_right) {
    while (max_splits-- != 0) {
      const size_t found = text.rfind(separator);
      if (found == std::string_view::npos) break;
      parts.push_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    }
    parts.push_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  while (max_splits-- != 0) {
    const size_t found = find_text(text, separator, 0);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_at_spaces(std::string_view text, int64_t max_splits,
                                              bool from_right) {
  std::vector<std::string_view> parts;
  text = stripped(text, std::nullopt, !from_right, from_right);
  while (!text.empty()) {
    if (max_splits-- == 0) {
      parts.push_back(text);
      break;
    }
    if (from_right) {
      size_t begin = text.size();
      while (begin > 0) {
        size_t before = begin;
        if (is_space(previous_code_point(text, before))) break;
        begin = before;
      }
      parts.push_back(text.substr(begin));
      text = stripped(text.substr(0, begin), std::nullopt, false, true);
    } else {
      size_t end = 0;
      while (end < text.size()) {
        size_t after = end;
        if (is_space(next_code_point(text, after))) break;
        end = after;
      }
      parts.push_back(text.substr(0, end));
      text = stripped(text.substr(end), std::nullopt, true, false);
    }
  }
  if (from_right) {
    std::reverse(parts.begin(), parts.end());
  }
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i;
    const char32_t c = next_code_point(text, i);
    if (!is_line_end(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(begin, (keep_ends ? i : end) - begin));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

Result<Value> replaced(Budget* budget, std::string_view text, std::string_view from,
                       std::string_view to, int64_t count) {
  TextWriter out(budget);
  HEDDLE_RETURN_IF_ERROR(budget->touch(text.size()));
  size_t begin = 0;
  if (from.empty()) {
    while (count-- != 0) {
      HEDDLE_RETURN_IF_ERROR(out.append(to));
      if (begin == text.size()) return out.finish();
      const size_t size = tokenizer::utf8_length(text[begin]);
      HEDDLE_RETURN_IF_ERROR(out.append(text.substr(begin, size)));
      begin += size;
    }
  } else {
    while (count-- != 0) {
      const size_t found = find_text(text, from, begin);
      if (found == std::string_view::npos) break;
      HEDDLE_RETURN_IF_ERROR(out.append(text.substr(begin, found - begin)));
      HEDDLE_RETURN_IF_ERROR(out.append(to));
      begin = found + from.size();
    }
  }
  HEDDLE_RETURN_IF_ERROR(out.append(text.substr(begin)));
  return out.finish();
}

Result<Value> padded(Budget* budget, std::string_view text, int64_t left, int64_t right,
                     std::string_view fill) {
  TextWriter out(budget);
  HEDDLE_RETURN_IF_ERROR(out.repeat(fill, left));
  HEDDLE_RETURN_IF_ERROR(out.append(text));
  HEDDLE_RETURN_IF_ERROR(out.repeat(fill, right));
  return out.finish();
}

std::string title_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool behind_letter = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (behind_letter) {
      append_lower(c, result);
    } else {
      append_title(c, result);
    }
    behind_letter = is_cased(c);
  }
  return result;
}

Result<Value> list_of_texts(Budget* budget, const std::vector<std::string_view>& parts) {
  HEDDLE_RETURN_IF_ERROR(budget->fits(parts.size() * (sizeof(Value) + sizeof(Text))));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    HEDDLE_RETURN_IF_ERROR(budget->step());
    HEDDLE_ASSIGN_OR_RETURN(Value item, make_text(budget, std::string(part)));
    items.push_back(std::move(item));
  }
  return make_list(budget, std::move(items));
}

}  // namespace heddle::chat
