// SPDX-License-Identifier: Apache-2.0
// A position in a template's tokens, with the questions and demands the parsers make at it.
#pragma once

#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "chat/lexer.h"

namespace heddle::chat {

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

  // Moves on when the token is there.
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

  // Error: kInvalidArgument at the token that stands there instead.
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
