// SPDX-License-Identifier: Apache-2.0
// Splits a template's source into tokens and decides its whitespace: line ends become \n, one at
// the very end is dropped, a minus in a tag strips the whitespace next to the tag, and trim_blocks
// and lstrip_blocks do what Jinja documents. Comments are dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "chat/ast.h"

namespace heddle::chat {

enum class TokenKind : uint8_t {
  kText,         // text outside of tags, with whitespace stripped as its tags require
  kBlockBegin,   // the mark {% before a statement
  kBlockEnd,     // the mark %} after a statement
  kOutputBegin,  // the mark {{ before an expression
  kOutputEnd,    // the mark }} after an expression
  kName,
  kString,  // text: the string's content without escapes
  kInteger,
  kFloat,
  kOperator,  // text: the operator as written
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

  // Description for messages: 'endif' or "end of block".
  [[nodiscard]] std::string description() const;
};

struct WhitespaceRules {
  bool trim_blocks = true;    // a newline right after a block or comment is dropped
  bool lstrip_blocks = true;  // spaces before a block or comment that starts its line are dropped
};

// The form of every template error: kInvalidArgument "name:line:column: message".
Status error_at(std::string_view name, Position at, std::string_view message);

// Splits a source into tokens; the last one is kEnd. Error: as error_at().
Result<std::vector<Token>> tokenize(std::string_view source, std::string_view name,
                                    const WhitespaceRules& rules);

// TokenCursor: a position in a template's tokens, which the parsers read and advance.
class TokenCursor {
 public:
  // `tokens` must end with kEnd; both arguments must outlive the cursor.
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

  // Consumes the next token if it is this operator, and returns whether it was.
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

  // Consumes this operator. Error: kInvalidArgument at another token.
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
