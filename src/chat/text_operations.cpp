// SPDX-License-Identifier: Apache-2.0
#include "chat/text_operations.h"

#include <algorithm>
#include <cstring>

#include "chat/text_writer.h"
#include "chat/unicode.h"
#include "tokenizer/utf8.h"

namespace heddle::chat {

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
  // memmem and not string_view::find, whose worst case is the product of the lengths.
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
