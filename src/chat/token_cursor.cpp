// SPDX-License-Identifier: Apache-2.0
#include "chat/token_cursor.h"

#include <fmt/format.h>

namespace heddle::chat {

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
