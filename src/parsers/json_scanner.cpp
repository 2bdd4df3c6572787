// SPDX-License-Identifier: Apache-2.0
#include "parsers/json_scanner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "parsers/loose_number.h"
#include "parsers/loose_sign.h"
#include "parsers/marker_search.h"
#include "parsers/missing_quotes.h"
#include "parsers/string_end.h"

namespace heddle::parsers {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

bool can_begin_value(char c) {
  return is_digit(c) || std::string_view("{[\"'-+.tTfFnN").find(c) != std::string_view::npos;
}

constexpr size_t kMaxSpaceHeld = 4096;

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

JsonScanner JsonScanner::after_value(size_t levels) {
  JsonScanner scanner = of_json();
  scanner.levels_.assign(levels, Level::kObject);
  scanner.expect_ = Expect::kComma;
  return scanner;
}

JsonScanner JsonScanner::of_json(KeyReader read_key) {
  JsonScanner scanner(std::move(read_key));
  scanner.is_json_ = true;
  return scanner;
}

JsonScanner::State JsonScanner::scan(std::string_view text, size_t& used, std::string* copy,
                                     TextEnd end) {
  const bool at_end = end != TextEnd::kNone;
  copy_ = copy;
  State state = State::kMore;
  for (used = 0; state == State::kMore && used < text.size(); ++used) {
    char c = text[used];
    if (!is_json_ && (is_triple_ || reads_structure())) {
      const Match loose = read_loose(text.substr(used), at_end, used);
      if (loose == Match::kMore) break;
      if (loose == Match::kYes) continue;
    }
    if (is_escaped_ && c == '\\') {
      if (used + 1 == text.size()) break;
      c = unescaped(text[++used]);
    }
    if (is_triple_) {
      c == quote_ ? write(c == '"' ? std::string_view("\\\"") : "'") : (void)step(c);
      continue;
    }
    if (expect_ == Expect::kString && c == quote_ && !is_key_ && !is_json_) {
      const Match ends = quote_ends(text.substr(used + 1), end);
      if (ends == Match::kMore) break;
      if (ends == Match::kNo) {
        has_bare_quote_ = has_bare_quote_ || c == '"';
        has_own_quote_ = true;
        write(c == '"' ? std::string_view("\\\"") : std::string_view("'"));
        continue;
      }
    } else if (const Match last = misses_last_quote(text.substr(used), end); last != Match::kNo) {
      if (last == Match::kMore) break;
      (void)step(quote_);
    } else if (read_key_ && !is_json_ && levels_.size() == 1 && !in_list()) {
      size_t size = 0;
      const Match misses = misses_quote(text.substr(used), size, at_end);
      if (misses == Match::kMore) break;
      if (misses == Match::kYes) {
        const bool begins_bare = expect_ == Expect::kValue;
        (void)step(expect_ == Expect::kString ? quote_ : '"');
        is_bare_ = begins_bare;
        if (size > 0) continue;
      }
    }
    if (!step(c)) {
      state = State::kError;
      break;
    }
    if (levels_.empty()) state = State::kDone;
  }
  count_searched(used);
  copy_ = nullptr;
  return state;
}

bool JsonScanner::reads_structure() const {
  switch (expect_) {
    case Expect::kValue:
    case Expect::kFirstKey:
    case Expect::kKey:
    case Expect::kColon:
    case Expect::kFirstItem:
    case Expect::kComma:
    case Expect::kZero:
    case Expect::kInteger:
    case Expect::kFraction:
    case Expect::kPower:
    case Expect::kOtherNumber:
      return true;
    default:
      return false;
  }
}

// Reads all but the last byte of a sign that models write instead of a JSON sign. kNo: there is
// none.
Match JsonScanner::read_loose(std::string_view text, bool at_end, size_t& used) {
  if (is_triple_) {
    const Match ends = begins_triple_quote(text, quote_);
    if (ends == Match::kMore && !at_end) return Match::kMore;
    if (ends != Match::kYes) return Match::kNo;
    is_triple_ = false;
    used += 2;
    (void)step(quote_);
    return Match::kYes;
  }
  const bool before_value = expect_ == Expect::kValue || expect_ == Expect::kFirstItem;
  const LooseSign sign = read_loose_sign(text, before_value);
  if (sign.match == Match::kMore && !at_end) return Match::kMore;
  if (sign.match != Match::kYes) return Match::kNo;
  if (sign.kind == SignKind::kEscapedObject) {
    // Only the object's first key shows that the quotes are escaped; a backslash elsewhere is
    // wrong.
    is_escaped_ = expect_ == Expect::kFirstKey && levels_.size() == 1;
    is_json_ = is_escaped_;
    return Match::kNo;
  }
  if (!step(sign.meaning)) return Match::kNo;
  is_triple_ = sign.kind == SignKind::kTripleQuote;
  used += sign.size - 1;
  return Match::kYes;
}

bool JsonScanner::is_next_key(std::string_view written) const {
  const auto meant = read_key_(written);
  return meant && !keys_.contains(*meant) && !keys_.contains(written);
}

Match JsonScanner::quote_ends(std::string_view behind, TextEnd end) const {
  // A string that contains its own quotes would have continued where the answer was cut.
  const bool goes_on = end == TextEnd::kCut && has_own_quote_;
  const bool at_end = end != TextEnd::kNone && !goes_on;
  const StringContext context{.in_list = in_list(), .num_levels = levels_.size()};
  Match ends = quote_ends_string(behind, context, at_end);
  if (ends == Match::kNo && read_key_ && levels_.size() == 1) {
    ends = begins_next_member(
        behind, [this](std::string_view key) { return is_next_key(key); }, /*quote=*/{}, at_end);
  }
  return goes_on && ends == Match::kMore ? Match::kNo : ends;
}

Match JsonScanner::misses_last_quote(std::string_view text, TextEnd end) const {
  if (expect_ != Expect::kString || is_key_ || is_json_ || has_bare_quote_) return Match::kNo;
  const char c = text.front();
  const bool closes_other = c == '}' || c == ']';
  const bool begins_space = c == '\n' && !after_space_;
  if (brackets_in_string_ != 0 || (!closes_other && !begins_space)) return Match::kNo;
  const StringContext context{.in_list = in_list(), .num_levels = levels_.size()};
  return ends_last_string(text, context, quote_, end);
}

Match JsonScanner::misses_quote(std::string_view text, size_t& size, bool at_end) const {
  const auto is_key = [this](std::string_view key) { return is_next_key(key); };
  const char c = text.front();
  const bool is_other_quote = c == (quote_ == '"' ? '\'' : '"');
  switch (expect_) {
    case Expect::kString:
      size = is_other_quote ? 1 : 0;
      if (is_key_ && key_ && (c == ':' || c == '=' || is_other_quote)) {
        return key_ends_before(text, *key_, is_key, at_end);
      }
      if (!is_key_ && !has_bare_quote_ && (c == ',' || is_other_quote)) {
        const char quote = is_other_quote && quote_ == '\'' ? key_quote_ : quote_;
        const auto opening = is_bare_ ? std::nullopt : std::optional<char>(quote);
        return begins_next_member(text.substr(size), is_key, opening, at_end);
      }
      break;
    case Expect::kFirstKey:
    case Expect::kKey:
      return begins_bare_key(text, is_key, at_end);
    case Expect::kValue:
      return begins_bare_string(text, is_key, levels_.size(), at_end);
    default:
      break;
  }
  return Match::kNo;
}

bool JsonScanner::close_all(std::string* copy) {
  if (!number_.empty()) {
    copy_ = copy;
    const bool ends = expect_ != Expect::kMinus && end_number();
    copy_ = nullptr;
    if (!ends) return false;
  }
  switch (expect_) {
    case Expect::kComma:
    case Expect::kFirstKey:
    case Expect::kFirstItem:
    case Expect::kZero:
    case Expect::kInteger:
    case Expect::kFraction:
    case Expect::kPower:
      break;
    case Expect::kKey:
    case Expect::kValue:
      if (!comma_.empty()) break;  // the comma is the last character: nothing follows it
      return false;
    default:
      return false;
  }
  comma_.clear();
  for (; !levels_.empty(); levels_.pop_back()) {
    if (copy != nullptr) *copy += in_list() ? ']' : '}';
  }
  return true;
}

void JsonScanner::write(std::string_view text) {
  if (key_) {
    *key_ += text;
    if (key_->size() <= kMaxKeyBytes) return;
    const std::string written = *std::exchange(key_, std::nullopt);
    write('"');
    write(written);
  } else if (copy_ != nullptr) {
    *copy_ += text;
  }
}

// Writes the key that is meant, unless the object already has it.
void JsonScanner::end_key() {
  if (key_) {
    std::string key = *std::exchange(key_, std::nullopt);
    if (key.find('\\') == std::string::npos) {
      const auto meant = read_key_(key);
      if (meant && *meant != key && !keys_.contains(*meant)) {
        key.clear();
        append_escaped(*meant, key);
      }
    }
    write('"');
    write(key);
    last_key_ = key;
    keys_.insert(std::move(key));
  }
  write('"');
}

bool JsonScanner::step(char c) {
  switch (expect_) {
    case Expect::kObject:
      return c == '{' && begin_value(c);
    case Expect::kString:
      return step_string(c);
    case Expect::kEscape:
      return step_escape(c);
    case Expect::kHex:
      if (!is_hex(c)) return false;
      if (--hex_left_ == 0) expect_ = Expect::kString;
      write(c);
      return true;
    case Expect::kWord:
      if (c != word_.front()) return false;
      word_.remove_prefix(1);
      if (word_.empty()) expect_ = Expect::kComma;
      if (!is_none_) write(c);
      return true;
    case Expect::kMinus:
    case Expect::kZero:
    case Expect::kInteger:
    case Expect::kPoint:
    case Expect::kFraction:
    case Expect::kExponent:
    case Expect::kSign:
    case Expect::kPower:
    case Expect::kOtherNumber:
      return number(c);
    case Expect::kSlash:
    case Expect::kLineComment:
    case Expect::kBlockComment:
    case Expect::kStar:
      return step_comment(c);
    default:
      break;
  }
  if (c == '/' && !is_json_) {
    behind_comment_ = std::exchange(expect_, Expect::kSlash);
    return true;
  }
  if (is_json_space(c)) {
    if (comma_.empty()) {
      write(c);
    } else if (comma_.size() < kMaxSpaceHeld) {
      comma_ += c;
    }
    return true;
  }
  switch (expect_) {
    case Expect::kFirstKey:
    case Expect::kKey:
      if (c == '}' || c == ']') return close(c == ']');
      if (c == '{' && expect_ == Expect::kFirstKey && levels_.back() == Level::kObject) {
        levels_.back() = Level::kDoubledObject;
        return true;
      }
      return c == ',' || (c == ';' && !is_json_) || begin_key(c);  // repeated commas count as one
    case Expect::kColon:
      if (!is_colon(c) && !can_begin_value(c)) return false;
      expect_ = Expect::kValue;
      write(':');
      return is_colon(c) || begin_value(c);
    case Expect::kFirstItem:
      if (c == '}' || c == ']') return close(c == ']');
      return begin_item(c);
    case Expect::kValue:
      if (in_list() && (c == '}' || c == ']')) return close(c == ']');
      // a doubled colon, or "=>"
      if (!in_list() && !is_json_ && (is_colon(c) || c == '>')) return true;
      return begin_item(c);
    default:  // Expect::kComma
      if (std::exchange(may_close_again_, false) && c == '}') return true;
      if (c == '}' || c == ']') return close(c == ']');
      if (c == ')' && !is_json_) return true;  // ignores an unmatched closing parenthesis
      expect_ = in_list() ? Expect::kValue : Expect::kKey;
      comma_ = ",";
      if (c == ',' || (c == ';' && !is_json_)) return true;
      // The comma between two items or members is missing.
      return in_list() ? begin_item(c) : begin_key(c);
  }
}

bool JsonScanner::step_comment(char c) {
  if (expect_ == Expect::kSlash) {
    expect_ = c == '*' ? Expect::kBlockComment : Expect::kLineComment;
    return c == '*' || c == '/';
  }
  if (expect_ == Expect::kLineComment) {
    if (c == '\n') expect_ = behind_comment_;
  } else if (c == '/' && expect_ == Expect::kStar) {
    expect_ = behind_comment_;
  } else {
    expect_ = c == '*' ? Expect::kStar : Expect::kBlockComment;
  }
  return true;
}

bool JsonScanner::step_string(char c) {
  after_space_ = is_json_space(c);
  if (c == '{' || c == '[') ++brackets_in_string_;
  if ((c == '}' || c == ']') && brackets_in_string_ > 0) --brackets_in_string_;
  if (c == '\\') {
    expect_ = Expect::kEscape;  // the backslash is emitted with the escaped character
  } else if (c == quote_) {
    expect_ = is_key_ ? Expect::kColon : Expect::kComma;
    is_key_ ? end_key() : write('"');
  } else if (static_cast<unsigned char>(c) < 0x20 || c == '"') {
    has_bare_quote_ = has_bare_quote_ || c == '"';
    std::string escaped;
    append_escaped({&c, 1}, escaped);
    write(escaped);
  } else {
    write(c);
  }
  return true;
}

bool JsonScanner::step_escape(char c) {
  expect_ = c == 'u' ? Expect::kHex : Expect::kString;
  hex_left_ = 4;
  if (c == '\'') {  // \' is an escape in Python and not in JSON
    write(c);
  } else if (c == 'u' || std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    const char escape[] = {'\\', c};
    write({escape, 2});
  } else {  // the backslash is literal, as in "\d"
    write("\\\\");
    return step_string(c);
  }
  return true;
}

bool JsonScanner::begin_key(char c) {
  if (c != '"' && c != '\'') return false;
  write(comma_);
  comma_.clear();
  expect_ = Expect::kString;
  is_key_ = true;
  quote_ = c;
  key_quote_ = c;
  if (read_key_ && levels_.size() == 1) {
    key_.emplace();
  } else {
    write('"');
  }
  return true;
}

// Begins an item of a list, or a value after a colon.
bool JsonScanner::begin_item(char c) {
  if (c == ',' && in_list()) return true;  // repeated commas count as one
  if (!can_begin_value(c)) return false;
  write(comma_);
  comma_.clear();
  return begin_value(c);
}

bool JsonScanner::begin_value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (levels_.size() == kMaxLevels) return false;
      levels_.push_back(c == '[' ? Level::kList : Level::kObject);
      expect_ = c == '[' ? Expect::kFirstItem : Expect::kFirstKey;
      write(c);
      return true;
    case '"':
    case '\'':
      expect_ = Expect::kString;
      is_key_ = false;
      has_bare_quote_ = false;
      has_own_quote_ = false;
      is_bare_ = false;
      brackets_in_string_ = 0;
      after_space_ = false;
      quote_ = c;
      write('"');
      return true;
    case 't':
    case 'T':
    case 'f':
    case 'F':
    case 'n':
    case 'N': {
      const char lower = static_cast<char>(c | 0x20);
      word_ = lower == 't' ? "rue" : lower == 'f' ? "alse" : c == 'n' ? "ull" : "one";
      expect_ = Expect::kWord;
      is_none_ = c == 'N';
      is_none_ ? write("null") : write(lower);
      return true;
    }
    default:
      return begin_number(c);
  }
}

// The sign and a leading zero are held back: the next characters show whether the number is JSON's.
bool JsonScanner::begin_number(char c) {
  if ((c == '+' || c == '.') && is_json_) return false;
  number_.clear();
  if (c >= '1' && c <= '9') {
    expect_ = Expect::kInteger;
    write(c);
    return true;
  }
  number_ = c;
  expect_ = c == '0' ? Expect::kZero : c == '.' ? Expect::kOtherNumber : Expect::kMinus;
  return c == '0' || c == '.' || c == '+' || c == '-';
}

// Writes the number that was held back.
bool JsonScanner::end_number() {
  const std::string number = std::exchange(number_, {});
  const bool is_other = std::exchange(expect_, Expect::kComma) == Expect::kOtherNumber;
  if (!is_other) {
    write(number);
    return true;
  }
  const bool is_named = read_number_ && levels_.size() == 1 && !in_list();
  const auto json = is_named ? read_number_(last_key_, number) : loose_number(number);
  if (json) write(*json);
  return json.has_value();
}

// The character after a number ends it and is then processed again.
bool JsonScanner::number(char c) {
  constexpr size_t kMaxOtherNumber = 64;
  const bool goes_on =
      is_digit(c) || std::string_view("_.xXoObB").find(c) != std::string_view::npos;
  if (expect_ == Expect::kOtherNumber) {
    if (!goes_on && !is_hex(c) && c != '+' && c != '-') return end_number() && step(c);
    number_ += c;
    return number_.size() <= kMaxOtherNumber;
  }
  if (!number_.empty() && !is_json_) {  // the number begins with a sign, a zero or both
    const bool is_zero = expect_ == Expect::kZero;
    const bool begins_other = is_zero ? goes_on && c != '.' : number_ == "+" || c == '.';
    if (begins_other) {
      number_ += c;
      expect_ = Expect::kOtherNumber;
      return is_zero || is_digit(c) || c == '.';
    }
  }
  if (expect_ == Expect::kMinus && c == '0') {
    number_ += c;
    expect_ = Expect::kZero;
    return true;
  }
  write(std::exchange(number_, {}));
  const bool digit = is_digit(c);
  const bool exponent = c == 'e' || c == 'E';
  Expect next = expect_;
  bool taken = digit;
  switch (expect_) {
    case Expect::kMinus:
      if (!digit) return false;
      next = Expect::kInteger;
      break;
    case Expect::kPoint:
      if (!digit && !is_json_) {  // "3." is read as 3
        expect_ = Expect::kComma;
        return step(c);
      }
      if (!digit) return false;
      write('.');
      next = Expect::kFraction;
      break;
    case Expect::kExponent:
      if (!digit && c != '+' && c != '-') return false;
      next = digit ? Expect::kPower : Expect::kSign;
      taken = true;
      break;
    case Expect::kSign:
      if (!digit) return false;
      next = Expect::kPower;
      break;
    case Expect::kZero:
    case Expect::kInteger:
      if (digit && expect_ == Expect::kZero) return false;
      if (c == '_' && !is_json_ && expect_ == Expect::kInteger) return true;
      if (c == '.') {  // the point is written with the digit after it
        expect_ = Expect::kPoint;
        return true;
      }
      taken = digit || exponent;
      if (exponent) next = Expect::kExponent;
      break;
    case Expect::kFraction:
      taken = digit || exponent;
      if (exponent) next = Expect::kExponent;
      break;
    default:  // Expect::kPower
      break;
  }
  expect_ = taken ? next : Expect::kComma;
  if (!taken) return step(c);
  write(c);
  return true;
}

// Closes a list or object. Lists and objects that were opened inside it are closed, too; an
// unmatched bracket is skipped.
bool JsonScanner::close(bool list) {
  size_t depth = levels_.size();
  while (depth > 0 && (levels_[depth - 1] == Level::kList) != list) --depth;
  if (depth == 0) return true;
  if (!comma_.empty()) write(std::string_view(comma_).substr(1));
  comma_.clear();
  may_close_again_ = levels_[depth - 1] == Level::kDoubledObject;
  for (; levels_.size() >= depth; levels_.pop_back()) write(in_list() ? ']' : '}');
  expect_ = Expect::kComma;
  return true;
}

std::string completed_object(std::string_view text) {
  const auto close = [](std::string_view open, std::string& copy) {
    JsonScanner scanner = JsonScanner::of_json();
    size_t used = 0;
    const JsonScanner::State state = scanner.scan(open, used, &copy);
    return state == JsonScanner::State::kDone || scanner.close_all(&copy);
  };
  if (std::string copy; close(text, copy)) return copy;
  // the text ends inside a string
  if (std::string copy; close(std::string(text) + '"', copy)) return copy;
  // Otherwise ends after the last complete member.
  JsonScanner scanner = JsonScanner::of_json();
  std::string copy;
  size_t whole_size = 0;
  std::string closers = "{}";
  for (size_t begin = 0; begin < text.size();) {
    const size_t place = std::min(text.find_first_of(",{[", begin), text.size());
    size_t used = 0;
    const auto scan = [&](std::string_view part) {
      return scanner.scan(part, used, &copy) == JsonScanner::State::kMore;
    };
    const auto remember = [&] {
      std::string needed;
      JsonScanner probe = scanner;
      if (!probe.close_all(&needed)) return;
      whole_size = copy.size();
      closers = std::move(needed);
    };
    if (!scan(text.substr(begin, place - begin)) || place == text.size()) break;
    remember();
    if (!scan(text.substr(place, 1))) break;
    if (text[place] != ',') remember();
    begin = place + 1;
  }
  return copy.substr(0, whole_size) + closers;
}

// nlohmann::json treats a zero byte as the end of the text.
bool is_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return false;
  return nlohmann::json::accept(text) ||  // accept() refuses numbers beyond a double
         (text.find_first_of("0123456789") != std::string_view::npos &&
          parse_exact_json(text).ok());
}

void append_escaped(std::string_view text, std::string& out) {
  size_t plain = 0;  // beginning of the current run of characters that need no escape
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
