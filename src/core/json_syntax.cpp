// SPDX-License-Identifier: Apache-2.0
#include "core/json_syntax.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

#include "core/file_kind.h"
#include "core/printable.h"

namespace heddle {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kReplacement = "\\ufffd";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string hint_for(char c, std::string_view rest) {
  if (c == '\'') return "; JSON has double quotes";
  if (rest.starts_with("//") || rest.starts_with("/*") || c == '#') return "; JSON has no comments";
  for (const std::string_view word : {"True", "False", "None"}) {
    if (rest.starts_with(word)) return "; JSON writes true, false and null";
  }
  return "; correct the line, or download the file again";
}

class StrictJsonWriter {
 public:
  explicit StrictJsonWriter(std::string_view text) : text_(text) { out_.reserve(text.size() + 64); }

  Status write() {
    std::string open;  // the opening brackets that are not closed yet
    bool expects_value = true;
    while (true) {
      skip_space();
      if (expects_value) {
        HEDDLE_RETURN_IF_ERROR(begin_value(open, expects_value));
      } else if (!open.empty()) {
        HEDDLE_RETURN_IF_ERROR(follow_value(open, expects_value));
      } else if (position_ == text_.size()) {
        out_.append(text_.substr(copied_));
        return ok_status();
      } else {
        return expected("the end of the file");
      }
    }
  }

  std::string take() { return std::move(out_); }

 private:
  [[nodiscard]] char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  [[nodiscard]] std::string_view rest() const { return text_.substr(position_); }

  void skip_space() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n' ||
                                        text_[position_] == '\r' || text_[position_] == '\t')) {
      ++position_;
    }
  }

  // Reads a whole value, or the opening bracket of an object or array and, in an object, its first
  // key.
  Status begin_value(std::string& open, bool& expects_value) {
    const char c = peek();
    expects_value = false;
    if (c != '{' && c != '[') return scalar();
    if (open.size() == kMaxJsonDepth) {
      return failure(fmt::format("nested more than {} levels deep", kMaxJsonDepth));
    }
    open.push_back(c);
    ++position_;
    skip_space();
    if (peek() == closing_of(c)) return ok_status();  // follow_value() reads the closing bracket
    expects_value = true;
    return c == '{' ? key() : ok_status();
  }

  // Reads a comma and, in an object, the next key; or the closing bracket.
  Status follow_value(std::string& open, bool& expects_value) {
    const char closing = closing_of(open.back());
    if (peek() == closing) {
      ++position_;
      open.pop_back();
      return ok_status();
    }
    if (peek() != ',') return expected(fmt::format("',' or '{}'", closing));
    const size_t comma = position_++;
    skip_space();
    if (peek() == closing)
      return at(comma).failure(fmt::format("a comma before '{}'; remove it", closing));
    expects_value = true;
    return open.back() == '{' ? key() : ok_status();
  }

  static char closing_of(char opening) { return opening == '{' ? '}' : ']'; }

  Status key() {
    if (peek() != '"') return expected("a key in double quotes");
    HEDDLE_RETURN_IF_ERROR(string());
    skip_space();
    if (peek() != ':') return expected("':' after a key");
    ++position_;
    skip_space();
    return ok_status();
  }

  Status scalar() {
    const char c = peek();
    if (c == '"') return string();
    if (is_digit(c) || (c == '-' && !rest().starts_with("-I"))) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (rest().starts_with(word)) {
        position_ += word.size();
        return ok_status();
      }
    }
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (rest().starts_with(word)) {
        replace(word.size(), special_float(word));
        return ok_status();
      }
    }
    return expected("a value");
  }

  Status number() {
    const size_t begin = position_;
    size_t end = begin + (text_[begin] == '-' ? 1 : 0);
    const auto digits = [&] {
      const size_t first = end;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      return end - first;
    };
    const size_t first_digit = end;
    const size_t num_digits = digits();
    if (num_digits == 0) return expected("a value");
    if (num_digits > 1 && text_[first_digit] == '0') return failure("a number that begins with 0");
    bool integral = true;
    if (end < text_.size() && text_[end] == '.') {
      ++end;
      integral = false;
      if (digits() == 0) return at(end).expected("a digit after '.'");
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      ++end;
      integral = false;
      if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
      if (digits() == 0) return at(end).expected("a digit of the exponent");
    }
    const std::string written(text_.substr(begin, end - begin));
    if (integral && fits_64_bits(written)) {
      position_ = end;
      return ok_status();
    }
    const double value = std::strtod(written.c_str(), nullptr);
    if (std::isinf(value)) {
      replace(written.size(), special_float(value < 0 ? "-Infinity" : "Infinity"));
    } else if (integral) {
      replace(written.size(), written + ".0");
    } else if (value == 0) {
      // Zero, or a number too small for a double.
      replace(written.size(), written[0] == '-' ? "-0.0" : "0.0");
    } else {
      position_ = end;
    }
    return ok_status();
  }

  static bool fits_64_bits(const std::string& digits) {
    const char* const end = digits.data() + digits.size();
    int64_t number = 0;
    uint64_t unsigned_number = 0;
    return std::from_chars(digits.data(), end, number).ec == std::errc() ||
           std::from_chars(digits.data(), end, unsigned_number).ec == std::errc();
  }

  static std::string special_float(std::string_view name) {
    return fmt::format(R"({{"{}": "{}"}})", kSpecialFloatKey, name);
  }

  Status string() {
    const size_t begin = position_++;
    while (true) {
      if (position_ >= text_.size()) {
        return at(begin).failure("a string that does not end: the file is cut, or a quote is lost");
      }
      const auto c = static_cast<unsigned char>(text_[position_]);
      if (c == '"') {
        ++position_;
        return ok_status();
      }
      if (c < 0x20) {
        return failure(fmt::format("the control character U+{:04X} in a string; write \\u{:04x}",
                                   unsigned{c}, unsigned{c}));
      }
      if (c == '\\') {
        HEDDLE_RETURN_IF_ERROR(escape());
      } else {
        const size_t length = utf8_character_length(rest());
        if (length == 0) {
          return failure(fmt::format(
              "the byte 0x{:02X}, which is not UTF-8; save the file as UTF-8", unsigned{c}));
        }
        position_ += length;
      }
    }
  }

  Status escape() {
    const char kind = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
    if (kind != 'u') {
      if (kind == '\0' || std::string_view("\"\\/bfnrt").find(kind) == std::string_view::npos) {
        return failure("an escape that JSON does not know; a backslash is written \\\\");
      }
      position_ += 2;
      return ok_status();
    }
    constexpr size_t kLength = 6;  // length of \uXXXX
    const int first = code_unit(position_);
    if (first < 0) return failure("\\u without four hexadecimal digits");
    if (first < 0xD800 || first > 0xDFFF) {
      position_ += kLength;
      return ok_status();
    }
    const int second = first < 0xDC00 ? code_unit(position_ + kLength) : -1;
    if (second >= 0xDC00 && second <= 0xDFFF) {
      position_ += 2 * kLength;
    } else {
      replace(kLength, kReplacement);
    }
    return ok_status();
  }

  // The UTF-16 code unit of the escape at `position`; -1 if there is no escape.
  [[nodiscard]] int code_unit(size_t position) const {
    if (position + 6 > text_.size() || text_.substr(position, 2) != "\\u") return -1;
    int unit = 0;
    const char* const digits = text_.data() + position + 2;
    const auto [end, error] = std::from_chars(digits, digits + 4, unit, 16);
    return error == std::errc() && end == digits + 4 && digits[0] != '-' ? unit : -1;
  }

  // Writes `text` instead of the next `length` bytes.
  void replace(size_t length, std::string_view text) {
    out_.append(text_.substr(copied_, position_ - copied_)).append(text);
    position_ += length;
    copied_ = position_;
  }

  StrictJsonWriter& at(size_t position) {
    position_ = std::min(position, text_.size());
    return *this;
  }

  [[nodiscard]] Status failure(std::string_view what) const {
    const std::string_view before = text_.substr(0, position_);
    const size_t last_line = before.rfind('\n');
    const size_t line_begin = last_line == std::string_view::npos ? 0 : last_line + 1;
    const std::string_view line = before.substr(line_begin);
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
    return data_loss(fmt::format(
        "not valid JSON at line {}, column {}: {}", std::ranges::count(before, '\n') + 1,
        line.size() - static_cast<size_t>(std::ranges::count_if(line, continues)) + 1, what));
  }

  [[nodiscard]] Status expected(std::string_view what) const {
    if (position_ >= text_.size()) {
      return failure(
          fmt::format("the file ends where {} is expected: truncated, or not fully "
                      "downloaded; download it again",
                      what));
    }
    const char c = text_[position_];
    std::string found = c >= ' ' && c <= '~' ? fmt::format("'{}'", c)
                                             : fmt::format("the byte 0x{:02X}",
                                                           unsigned{static_cast<unsigned char>(c)});
    return failure(fmt::format("{} where {} is expected{}", found, what, hint_for(c, rest())));
  }

  std::string_view text_;
  size_t position_ = 0;
  size_t copied_ = 0;
  std::string out_;
};

// The kind of a text that is not JSON at all; empty if it may be JSON.
std::string describe_other_kind(std::string_view text) {
  if (const std::string kind = describe_file_kind(text); !kind.empty()) {
    return "not valid JSON: " + kind;
  }
  if (text.empty()) return "not valid JSON: the file is empty; download it again";
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return "not valid JSON: the file has only white space; download it again";
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") ||
      text.substr(0, 2).find('\0') != std::string_view::npos) {
    return "not valid JSON: the file is UTF-16 or binary; save it as UTF-8, or download it again";
  }
  return {};
}

}  // namespace

Result<std::string> strict_json(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (const std::string other = describe_other_kind(text); !other.empty()) return data_loss(other);
  StrictJsonWriter writer(text);
  HEDDLE_RETURN_IF_ERROR(writer.write());
  return writer.take();
}

}  // namespace heddle
