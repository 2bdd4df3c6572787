// SPDX-License-Identifier: Apache-2.0
#include "parsers/json_scanner.h"

#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::parsers {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

JsonScanner JsonScanner::after_value() {
  JsonScanner scanner;
  scanner.levels_.push_back(false);
  scanner.expect_ = Expect::kComma;
  return scanner;
}

JsonScanner::State JsonScanner::scan(std::string_view text, size_t& used, std::string* copy) {
  for (used = 0; used < text.size(); ++used) {
    const char c = text[used];
    const bool in_string = expect_ == Expect::kString;
    if (!step(c)) return State::kError;
    if (copy != nullptr) {
      if (in_string && static_cast<unsigned char>(c) < 0x20) {
        append_escaped({&c, 1}, *copy);
      } else {
        *copy += c;
      }
    }
    if (levels_.empty()) {
      ++used;
      return State::kDone;
    }
  }
  return State::kMore;
}

bool JsonScanner::step(char c) {
  switch (expect_) {
    case Expect::kObject:
      return c == '{' && begin_value(c);
    case Expect::kString:
      if (c == '\\') {
        expect_ = Expect::kEscape;
      } else if (c == '"') {
        expect_ = is_key_ ? Expect::kColon : Expect::kComma;
      }
      return true;
    case Expect::kEscape:
      expect_ = c == 'u' ? Expect::kHex : Expect::kString;
      hex_left_ = 4;
      return c == 'u' || std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    case Expect::kHex:
      if (--hex_left_ == 0) expect_ = Expect::kString;
      return is_hex(c);
    case Expect::kWord:
      if (c != word_.front()) return false;
      word_.remove_prefix(1);
      if (word_.empty()) expect_ = Expect::kComma;
      return true;
    case Expect::kMinus:
    case Expect::kZero:
    case Expect::kInteger:
    case Expect::kPoint:
    case Expect::kFraction:
    case Expect::kExponent:
    case Expect::kSign:
    case Expect::kPower:
      return number(c);
    default:
      break;
  }
  if (is_json_space(c)) return true;
  switch (expect_) {
    case Expect::kFirstKey:
      if (c == '}') return close(false);
      [[fallthrough]];
    case Expect::kKey:
      expect_ = Expect::kString;
      is_key_ = true;
      return c == '"';
    case Expect::kColon:
      expect_ = Expect::kValue;
      return c == ':';
    case Expect::kFirstItem:
      if (c == ']') return close(true);
      [[fallthrough]];
    case Expect::kValue:
      return begin_value(c);
    default:  // kComma
      if (c != ',') return (c == '}' || c == ']') && close(c == ']');
      expect_ = levels_.back() ? Expect::kValue : Expect::kKey;
      return true;
  }
}

bool JsonScanner::begin_value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (levels_.size() == kMaxLevels) return false;
      levels_.push_back(c == '[');
      expect_ = c == '[' ? Expect::kFirstItem : Expect::kFirstKey;
      return true;
    case '"':
      expect_ = Expect::kString;
      is_key_ = false;
      return true;
    case '-':
      expect_ = Expect::kMinus;
      return true;
    case 't':
    case 'f':
    case 'n':
      word_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      expect_ = Expect::kWord;
      return true;
    default:
      expect_ = c == '0' ? Expect::kZero : Expect::kInteger;
      return is_digit(c);
  }
}

// A number ends with what comes after it, which is looked at again.
bool JsonScanner::number(char c) {
  const bool digit = is_digit(c);
  const bool exponent = c == 'e' || c == 'E';
  switch (expect_) {
    case Expect::kMinus:
      expect_ = c == '0' ? Expect::kZero : Expect::kInteger;
      return digit;
    case Expect::kPoint:
      expect_ = Expect::kFraction;
      return digit;
    case Expect::kExponent:
      expect_ = digit ? Expect::kPower : Expect::kSign;
      return digit || c == '+' || c == '-';
    case Expect::kSign:
      expect_ = Expect::kPower;
      return digit;
    case Expect::kZero:
    case Expect::kInteger:
      if (digit) return expect_ == Expect::kInteger;
      if (c == '.' || exponent) {
        expect_ = exponent ? Expect::kExponent : Expect::kPoint;
        return true;
      }
      break;
    case Expect::kFraction:
      if (digit) return true;
      if (exponent) {
        expect_ = Expect::kExponent;
        return true;
      }
      break;
    default:  // kPower
      if (digit) return true;
      break;
  }
  expect_ = Expect::kComma;
  return step(c);
}

bool JsonScanner::close(bool list) {
  if (levels_.back() != list) return false;
  levels_.pop_back();
  expect_ = Expect::kComma;
  return true;
}

// The library takes a zero byte for the text's end.
bool is_json(std::string_view text) {
  return text.find('\0') == std::string_view::npos && nlohmann::json::accept(text);
}

void append_escaped(std::string_view text, std::string& out) {
  size_t plain = 0;  // where the characters begin that go as they are
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out += text.substr(plain, i - plain);
    plain = i + 1;
    switch (byte) {
      case '"':
      case '\\':
        out += '\\';
        out += text[i];
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
        break;
    }
  }
  out += text.substr(plain);
}

}  // namespace heddle::parsers
