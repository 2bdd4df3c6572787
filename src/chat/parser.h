// SPDX-License-Identifier: Apache-2.0
// Parses a template's statements: the tags between {% and %}, with the text and output between
// them.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "chat/ast.h"
#include "chat/lexer.h"
#include "chat/limits.h"

namespace heddle::chat {

// Supported tags: if/elif/else, for/else (with a filter), set (also of blocks and of namespace
// attributes), macro, call, filter, with, print, break, continue, raw, and generation, whose body
// is rendered as it is.
// Error: kInvalidArgument "name:line:column: message".
Result<Block> parse_template(std::string_view source, std::string_view name,
                             const WhitespaceRules& rules, const RenderLimits& limits);

}  // namespace heddle::chat
