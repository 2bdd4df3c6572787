// SPDX-License-Identifier: Apache-2.0
#include "parsers/python_literal.h"

#include <algorithm>
#include <cstdint>

#include "parsers/json_scanner.h"
#include "parsers/loose_number.h"
#include "parsers/marker_search.h"

namespace heddle::parsers {
namespace {

constexpr int kMaxLiteralLevels = 64;

// No letter can follow a string's closing quote, so a quote before a letter is an apostrophe.
bool goes_on_with(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         static_cast<unsigned char>(c) >= 0x80;
}

void append_utf8(uint32_t code, std::string& out) {
  const auto byte = [&out](uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6);
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : rest_(text) {}

  bool read_all(std::string& out) {
    if (!value(out, 0)) return false;
    skip_space();
    return rest_.empty();
  }

 private:
  void skip_space() { rest_.remove_prefix(space_size(rest_)); }

  bool take(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool value(std::string& out, int level) {
    skip_space();
    if (rest_.empty() || level > kMaxLiteralLevels) return false;
    switch (rest_.front()) {
      case '\'':
      case '"':
        return string(out);
      case '[':
        return list(']', out, level);
      case '(':
        return list(')', out, level);
      case '{':
        return dict(out, level);
      default:
        return word(out);
    }
  }

  bool list(char closing, std::string& out, int level) {
    rest_.remove_prefix(1);
    out += '[';
    for (bool first = true; !take(closing); first = false) {
      if (!first) {
        if (!take(',')) return false;
        if (take(closing)) break;
        out += ", ";
      }
      if (!value(out, level + 1)) return false;
    }
    out += ']';
    return true;
  }

  bool dict(std::string& out, int level) {
    rest_.remove_prefix(1);
    out += '{';
    for (bool first = true; !take('}'); first = false) {
      if (!first) {
        if (!take(',')) return false;
        if (take('}')) break;
        out += ", ";
      }
      skip_space();
      if (!rest_.starts_with('\'') && !rest_.starts_with('"')) return false;
      if (!string(out) || !take(':')) return false;
      out += ": ";
      if (!value(out, level + 1)) return false;
    }
    out += '}';
    return true;
  }

  bool word(std::string& out) {
    const size_t size = std::min(rest_.find_first_of(",:)]} \t\n\r"), rest_.size());
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    if (text == "True" || text == "true") {
      out += "true";
    } else if (text == "False" || text == "false") {
      out += "false";
    } else if (text == "None" || text == "null") {
      out += "null";
    } else {
      // a digit may follow a sign or a point
      const bool is_number = text.find_first_of("0123456789") < 3;
      const auto number = is_number && !is_json(text) ? loose_number(text) : std::string(text);
      if (!is_number || !number) return false;
      out += *number;
    }
    return true;
  }

  // Reads the digits of \xHH, \uXXXX, \UXXXXXXXX.
  bool hex(size_t digits, uint32_t& code) {
    if (rest_.size() < digits) return false;
    code = 0;
    for (const char c : rest_.substr(0, digits)) {
      const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
      if (lower >= '0' && lower <= '9') {
        code = code * 16 + static_cast<uint32_t>(lower - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        return false;
      }
    }
    rest_.remove_prefix(digits);
    return true;
  }

  // Reads a code unit. A surrogate pair, as JSON has it, becomes its character; a lone half becomes
  // U+FFFD.
  bool unicode(size_t digits, std::string& text) {
    uint32_t code = 0;
    if (!hex(digits, code)) return false;
    if (code >= 0xD800 && code < 0xDC00 && rest_.starts_with("\\u")) {
      const std::string_view before = rest_;
      uint32_t low = 0;
      rest_.remove_prefix(2);
      if (!hex(4, low)) return false;
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      } else {
        rest_ = before;
      }
    }
    if ((code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) code = 0xFFFD;
    append_utf8(code, text);
    return true;
  }

  bool escape(std::string& text) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    switch (c) {
      case '\n':
        return true;
      case 'n':
        text += '\n';
        return true;
      case 't':
        text += '\t';
        return true;
      case 'r':
        text += '\r';
        return true;
      case 'b':
        text += '\b';
        return true;
      case 'f':
        text += '\f';
        return true;
      case '0':
        text += '\0';
        return true;
      case 'x':
        return unicode(2, text);
      case 'u':
        return unicode(4, text);
      case 'U':
        return unicode(8, text);
      case '\\':
      case '\'':
      case '"':
      case '/':
        text += c;
        return true;
      default:  // in an unknown escape Python keeps the backslash
        text += '\\';
        text += c;
        return true;
    }
  }

  bool string(std::string& out) {
    const char quote = rest_.front();
    const std::string three(3, quote);
    const bool is_long = rest_.starts_with(three);
    rest_.remove_prefix(is_long ? 3 : 1);
    std::string text;
    while (true) {
      const char stops[] = {quote, '\\', '\0'};
      const size_t plain = rest_.find_first_of(std::string_view(stops, 2));
      if (plain == std::string_view::npos) return false;
      text += rest_.substr(0, plain);
      const char stop = rest_[plain];
      rest_.remove_prefix(plain);
      const bool is_apostrophe =
          stop == quote && !is_long && rest_.size() > 1 && goes_on_with(rest_[1]);
      const bool ends = stop == quote && !is_apostrophe && (!is_long || rest_.starts_with(three));
      rest_.remove_prefix(ends && is_long ? 3 : 1);
      if (ends) break;
      if (stop == quote) {
        text += quote;
      } else if (!escape(text)) {
        return false;
      }
    }
    out += '"';
    append_escaped(text, out);
    out += '"';
    return true;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<std::string> python_literal_to_json(std::string_view text) {
  std::string json;
  if (!LiteralReader(text).read_all(json)) return std::nullopt;
  return json;
}

size_t PythonLiteralEnd::scan(std::string_view text, bool& found) {
  found = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (num_opening_ > 0 && c == quote_) {
      is_long_ = ++num_opening_ == 3;
      if (is_long_) num_opening_ = 0;
      continue;
    }
    if (num_opening_ == 2) quote_ = '\0';  // two quotes are an empty string
    num_opening_ = 0;
    if (may_have_ended_) {
      may_have_ended_ = false;
      if (!goes_on_with(c)) quote_ = '\0';
    }
    if (quote_ != '\0') {
      num_closing_ = c == quote_ && !escaped_ ? num_closing_ + 1 : 0;
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (num_closing_ == (is_long_ ? 3 : 1)) {
        may_have_ended_ = !is_long_;
        if (is_long_) quote_ = '\0';
        num_closing_ = 0;
        is_long_ = false;
      }
    } else if (c == '\'' || c == '"') {
      quote_ = c;
      num_opening_ = 1;
    } else if (c == '[' || c == '(' || c == '{') {
      ++depth_;
    } else if (depth_ == 0 && (c == ',' || c == ')' || c == ']' || c == '}')) {
      found = true;
      count_searched(i);
      return i;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth_;
    }
  }
  count_searched(text.size());
  return text.size();
}

}  // namespace heddle::parsers
