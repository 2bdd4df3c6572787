// SPDX-License-Identifier: Apache-2.0
// Cuts a template's source into tokens and settles its whitespace: line ends become \n, one at the
// very end is dropped, a minus at a tag strips what stands beside it, and trim_blocks and
// lstrip_blocks do what Jinja documents. Comments disappear here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "chat/ast.h"

namespace heddle::chat {

enum class TokenKind : uint8_t {
  kText,         // text: outside of tags, whitespace settled
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kName,
  kString,  // text: unescaped
  kInteger,
  kFloat,
  kOperator,  // text: as written
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Position at;
  std::string text;
  int64_t integer = 0;
  double number = 0;

  [[nodiscard]] bool is_operator(std::string_view symbol) const {
    return kind == TokenKind::kOperator && text == symbol;
  }

  [[nodiscard]] bool is_name(std::string_view name) const {
    return kind == TokenKind::kName && text == name;
  }

  // For messages: 'endif' or "end of block".
  [[nodiscard]] std::string description() const;
};

struct WhitespaceRules {
  bool trim_blocks = true;    // a newline right after a block or comment is dropped
  bool lstrip_blocks = true;  // spaces before a block or comment that starts its line are dropped
};

// "name:line:column: message", kInvalidArgument: the form of every template error.
Status error_at(std::string_view name, Position at, std::string_view message);

// The last token is kEnd. Error: as error_at.
Result<std::vector<Token>> tokenize(std::string_view source, std::string_view name,
                                    const WhitespaceRules& rules);

// TokenCursor is a position in a template's tokens. The parsers ask and move it.
class TokenCursor {
 public:
  // `tokens` ends in kEnd; both must outlive the cursor.
  TokenCursor(const std::vector<Token>& tokens, std::string_view template_name)
      : tokens_(tokens), template_name_(template_name) {}

  [[nodiscard]] const Token& peek(size_t ahead = 0) const {
    return index_ + ahead < tokens_.size() ? tokens_[index_ + ahead] : tokens_.back();
  }

  const Token& next() {
    const Token& token = peek();
    if (index_ + 1 < tokens_.size()) ++index_;
    return token;
  }

  // Consumes the token if it is next.
  bool accept_operator(std::string_view symbol) {
    const bool found = peek().is_operator(symbol);
    if (found) next();
    return found;
  }

  bool accept_name(std::string_view name) {
    const bool found = peek().is_name(name);
    if (found) next();
    return found;
  }

  // Error: kInvalidArgument at the token found instead.
  Status expect_operator(std::string_view symbol);
  Status expect_name(std::string_view name);
  Status expect_kind(TokenKind kind, std::string_view what);
  Result<std::string> expect_identifier(std::string_view what);

  [[nodiscard]] Status fail(Position at, std::string_view message) const {
    return error_at(template_name_, at, message);
  }

 private:
  const std::vector<Token>& tokens_;
  std::string_view template_name_;
  size_t index_ = 0;
};

}  // namespace heddle::chat
