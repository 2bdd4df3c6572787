// SPDX-License-Identifier: Apache-2.0
#include "chat/lexer.h"

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "chat/python_text.h"
#include "chat/text_operations.h"
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

// Reads exactly `count` hexadecimal digits and advances `offset` past them.
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

// Replaces the escapes of a string literal as Python does: \n, \t, \\, \', \xHH, \uXXXX,
// \UXXXXXXXX, octal and the others; an unknown escape is kept as text. Error: kInvalidArgument for
// a truncated escape, a \N{name} or a code point that UTF-8 cannot represent.
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
        break;  // an escaped line end is dropped
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
          --i;  // the character after an unknown escape may have several bytes
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

// Longest first, so that the first match is the right operator.
constexpr std::array<std::string_view, 26> kOperators = {
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "(",
    ")",  "[",  "]",  "{",  "}",  "<",  ">", "=", ".", ":", "|", ",", ";"};

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

std::string with_unix_line_ends(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name, const WhitespaceRules& rules)
      : source_(with_unix_line_ends(source)), name_(name), rules_(rules) {}

  Result<std::vector<Token>> run() {
    while (offset_ < source_.size()) HEDDLE_RETURN_IF_ERROR(text_and_tag());
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return offset_ + ahead < source_.size() ? source_[offset_ + ahead] : '\0';
  }

  [[nodiscard]] bool at(std::string_view text) const {
    return std::string_view(source_).substr(offset_).starts_with(text);
  }

  // The current position. Calls come in ascending order, so each byte is counted once.
  Position position() {
    while (counted_ < offset_) {
      if (source_[counted_] == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((static_cast<unsigned char>(source_[counted_]) & 0xC0) != 0x80) {
        ++position_.column;
      }
      ++counted_;
    }
    return position_;
  }

  Status fail(Position where, std::string_view message) const {
    return error_at(name_, where, message);
  }

  Token& add(TokenKind kind, std::string text = {}) {
    return tokens_.emplace_back(Token{.kind = kind, .at = position(), .text = std::move(text)});
  }

  void skip_spaces() {
    while (offset_ < source_.size()) {
      size_t after = offset_;
      if (!is_space(next_code_point(source_, after))) return;
      offset_ = after;
    }
  }

  // The text before a tag, stripped as the tag's sign requires.
  [[nodiscard]] std::string_view settle_end(std::string_view text, char sign,
                                            bool is_output) const {
    size_t end = text.size();
    const auto spaces_from = [&text](size_t stop) {
      size_t begin = text.size();
      while (begin > stop) {
        size_t before = begin;
        if (!is_space(previous_code_point(text, before))) break;
        begin = before;
      }
      return begin;
    };
    if (sign == '-') {
      end = spaces_from(0);
    } else if (sign != '+' && rules_.lstrip_blocks && !is_output) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && spaces_from(line) == line) end = line;
    }
    return text.substr(0, end);
  }

  void add_text(std::string_view text) {
    if (!text.empty())
      tokens_.emplace_back(
          Token{.kind = TokenKind::kText, .at = position(), .text = std::string(text)});
  }

  // The sign (- or +) directly after a tag's opening.
  [[nodiscard]] char opening_sign(size_t at) const {
    const char sign = at < source_.size() ? source_[at] : '\0';
    return sign == '-' || sign == '+' ? sign : '\0';
  }

  // Consumes the end of a tag whose closing text is `close`, with its sign and the space that the
  // sign strips. Returns false and consumes nothing if there is none.
  bool closing(std::string_view close, bool may_keep_newline) {
    const char sign = peek() == '-' || (may_keep_newline && peek() == '+') ? peek() : '\0';
    const size_t skip = sign == '\0' ? 0 : 1;
    if (!std::string_view(source_)
             .substr(std::min(offset_ + skip, source_.size()))
             .starts_with(close)) {
      return false;
    }
    offset_ += skip + close.size();
    if (sign == '-') {
      skip_spaces();
    } else if (sign == '\0' && may_keep_newline && rules_.trim_blocks && peek() == '\n') {
      ++offset_;
    }
    line_starting_ = source_[offset_ - 1] == '\n';
    return true;
  }

  Status text_and_tag() {
    const std::string_view source = source_;
    size_t tag = offset_;
    while (true) {
      tag = source.find('{', tag);
      if (tag == std::string_view::npos) {
        add_text(source.substr(offset_));
        offset_ = source.size();
        return {};
      }
      const char kind = tag + 1 < source.size() ? source[tag + 1] : '\0';
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    const char kind = source[tag + 1];
    const char sign = opening_sign(tag + 2);
    add_text(settle_end(source.substr(offset_, tag - offset_), sign, kind == '{'));
    offset_ = tag;
    const Position opened = position();
    offset_ += sign == '\0' ? 2 : 3;
    line_starting_ = false;
    if (kind == '#') return comment(opened);
    if (kind == '%' && raw_begins()) return raw(opened);
    tokens_.emplace_back(
        Token{.kind = kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin,
              .at = opened,
              .text = {}});
    return inside_tag(opened, kind == '{');
  }

  Status comment(Position opened) {
    const size_t end = source_.find("#}", offset_);
    if (end == std::string::npos) return fail(opened, "the comment {# is not closed with #}");
    const bool has_sign = end > offset_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    offset_ = has_sign ? end - 1 : end;
    closing("#}", true);
    return {};
  }

  // Consumes " raw %}" after "{%"; consumes nothing if it is not there.
  bool raw_begins() {
    const size_t start = offset_;
    skip_spaces();
    if (at("raw")) {
      offset_ += 3;
      skip_spaces();
      if (peek() == '-' && peek(1) == '%' && peek(2) == '}') {
        offset_ += 3;
        skip_spaces();
        return true;
      }
      if (at("%}")) {
        offset_ += 2;
        return true;
      }
    }
    offset_ = start;
    return false;
  }

  Status raw(Position opened) {
    const size_t begin = offset_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = opening_sign(tag + 2);
      offset_ = tag + (sign == '\0' ? 2 : 3);
      skip_spaces();
      if (!at("endraw")) continue;
      offset_ += 6;
      skip_spaces();
      const bool starts = line_starting_;
      if (!closing("%}", true)) continue;
      const bool after = line_starting_;
      line_starting_ = starts;
      add_text(settle_end(std::string_view(source_).substr(begin, tag - begin), sign, false));
      line_starting_ = after;
      return {};
    }
    return fail(opened, "the block {% raw %} is not closed with {% endraw %}");
  }

  Status inside_tag(Position opened, bool is_output) {
    std::string brackets;  // open brackets: inside them "}}" does not end the tag
    while (true) {
      skip_spaces();
      const Position here = position();
      if (brackets.empty() && closing(is_output ? "}}" : "%}", !is_output)) {
        tokens_.emplace_back(Token{.kind = is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd,
                                   .at = here,
                                   .text = {}});
        return {};
      }
      if (offset_ >= source_.size()) {
        return fail(opened, is_output ? "the output {{ is not closed with }}"
                                      : "the block {% is not closed with %}");
      }
      HEDDLE_RETURN_IF_ERROR(token(brackets));
    }
  }

  Status token(std::string& brackets) {
    const char c = peek();
    if (c == '\'' || c == '"') return string_token();
    if (is_ascii_digit(c)) return number_token();
    size_t after = offset_;
    const char32_t first = next_code_point(source_, after);
    if (is_word(first)) {
      const size_t begin = offset_;
      Token& name = add(TokenKind::kName);
      while (after < source_.size()) {
        size_t next = after;
        if (!is_word(next_code_point(source_, next))) break;
        after = next;
      }
      name.text = source_.substr(begin, after - begin);
      offset_ = after;
      return {};
    }
    for (const std::string_view symbol : kOperators) {
      if (at(symbol)) return operator_token(symbol, brackets);
    }
    return fail(position(),
                fmt::format("unexpected character {}",
                            repr_of(std::string_view(source_).substr(offset_, after - offset_))));
  }

  Status operator_token(std::string_view symbol, std::string& brackets) {
    const char c = symbol[0];
    if (c == '(' || c == '[' || c == '{') {
      brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty()) return fail(position(), fmt::format("unexpected '{}'", c));
      if (brackets.back() != c) {
        return fail(position(), fmt::format("unexpected '{}', expected '{}'", c, brackets.back()));
      }
      brackets.pop_back();
    }
    add(TokenKind::kOperator, std::string(symbol));
    offset_ += symbol.size();
    return {};
  }

  Status string_token() {
    const Position opened = position();
    const char quote = peek();
    size_t end = offset_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail(opened, "the string is not closed");
    Result<std::string> text =
        unescape_string(std::string_view(source_).substr(offset_ + 1, end - offset_ - 1));
    if (!text.ok()) return fail(opened, text.status().message());
    add(TokenKind::kString, std::move(text).value());
    offset_ = end + 1;
    return {};
  }

  // The end of a run of digits, with single underscores between them, that begins at `begin`.
  [[nodiscard]] size_t digits_end(size_t begin) const {
    size_t end = begin;
    while (end < source_.size() &&
           (is_ascii_digit(source_[end]) ||
            (source_[end] == '_' && end > begin && end + 1 < source_.size() &&
             is_ascii_digit(source_[end + 1])))) {
      ++end;
    }
    return end;
  }

  Status number_token() {
    const bool after_dot = offset_ > 0 && source_[offset_ - 1] == '.';
    const size_t begin = offset_;
    size_t end = digits_end(begin);
    bool is_float = false;
    if (end == begin + 1 && source_[begin] == '0' && end < source_.size()) {
      const char letter = static_cast<char>(source_[end] | 0x20);
      if (letter == 'x' || letter == 'o' || letter == 'b') {
        size_t stop = end + 1;
        while (stop < source_.size() &&
               (std::isxdigit(static_cast<unsigned char>(source_[stop])) != 0 ||
                source_[stop] == '_')) {
          ++stop;
        }
        if (stop > end + 1) return add_integer(stop);
      }
    }
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && digits_end(end + 1) > end + 1) {
        end = digits_end(end + 1);
        is_float = true;
      }
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
          ++exponent;
        if (digits_end(exponent) > exponent) {
          end = digits_end(exponent);
          is_float = true;
        }
      }
    }
    if (!is_float) return add_integer(end);
    const std::string_view text = std::string_view(source_).substr(begin, end - begin);
    const std::optional<double> number = parse_float(text);
    if (!number) return fail(position(), fmt::format("'{}' is not a number", text));
    add(TokenKind::kFloat, std::string(text)).number = *number;
    offset_ = end;
    return {};
  }

  Status add_integer(size_t end) {
    const std::string_view text = std::string_view(source_).substr(offset_, end - offset_);
    const std::optional<int64_t> number = parse_integer(text, 0);
    if (!number) return fail(position(), fmt::format("'{}' is not an integer of 64 bits", text));
    add(TokenKind::kInteger, std::string(text)).integer = *number;
    offset_ = end;
    return {};
  }

  const std::string source_;
  const std::string_view name_;
  const WhitespaceRules rules_;
  size_t offset_ = 0;
  size_t counted_ = 0;  // number of bytes that position_ has counted
  Position position_;
  bool line_starting_ = true;  // true if the last tag ended its line, or no tag was read yet
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::description() const {
  switch (kind) {
    case TokenKind::kText:
      return "template text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "end of block '%}'";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "end of output '}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator:
      break;
  }
  return fmt::format("'{}'", text);
}

Status error_at(std::string_view name, Position at, std::string_view message) {
  return invalid_argument(fmt::format("{}:{}:{}: {}", name, at.line, at.column, message));
}

Result<std::vector<Token>> tokenize(std::string_view source, std::string_view name,
                                    const WhitespaceRules& rules) {
  if (!tokenizer::is_valid_utf8(source)) {
    return invalid_argument(fmt::format("{}: the template is not UTF-8 text", name));
  }
  return Lexer(source, name, rules).run();
}

Status TokenCursor::expect_operator(std::string_view symbol) {
  if (accept_operator(symbol)) return {};
  return fail(peek().at, fmt::format("expected '{}', found {}", symbol, peek().description()));
}

Status TokenCursor::expect_name(std::string_view name) {
  if (accept_name(name)) return {};
  return fail(peek().at, fmt::format("expected '{}', found {}", name, peek().description()));
}

Status TokenCursor::expect_kind(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) {
    return fail(peek().at, fmt::format("expected {}, found {}", what, peek().description()));
  }
  next();
  return {};
}

Result<std::string> TokenCursor::expect_identifier(std::string_view what) {
  if (peek().kind != TokenKind::kName) {
    return fail(peek().at, fmt::format("expected {}, found {}", what, peek().description()));
  }
  return next().text;
}

}  // namespace heddle::chat
