// SPDX-License-Identifier: Apache-2.0
// Parses expressions with Jinja's precedences, from lowest to highest:
//   a if c else b,  or,  and,  not,  comparisons and in,  + -,  ~,  * / // %,  **,  unary - +,
//   then .name [item] (call) and, after those, |filter and `is test`.
#pragma once

#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "chat/ast.h"
#include "chat/lexer.h"

namespace heddle::chat {

class ExpressionParser {
 public:
  ExpressionParser(TokenCursor& cursor, int max_depth) : cursor_(cursor), max_depth_(max_depth) {}

  // Error of all functions here: kInvalidArgument with line and column.
  Result<ExpressionPtr> parse_expression();

  // Parses one expression, or a tuple if commas follow: after `set x =`, in {{ }} and after `in`.
  // Without conditionals, a following `if` is not consumed, because it is a loop's filter.
  Result<ExpressionPtr> parse_tuple(bool with_conditionals);

  // Parses (a, b=c, *d, **e).
  Result<CallArguments> parse_call_arguments();

  // Parses the filters |name(arguments)|name... of a block; the block's text is the input of the
  // first filter. The first bar may be absent.
  Result<std::vector<FilterCall>> parse_block_filters(bool starts_with_bar);

  // Which of these names the parsed expressions read; a macro's parser clears them before its body.
  struct SpecialNames {
    bool varargs = false;
    bool kwargs = false;
    bool caller = false;
  };

  SpecialNames special_names;

 private:
  template <typename Node>
  Result<ExpressionPtr> make(Position at, int depth_below, Node node);

  Result<ExpressionPtr> parse_or();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_comparison();
  Result<ExpressionPtr> parse_arithmetic(int level);
  Result<ExpressionPtr> parse_unary(bool with_filters);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_parentheses();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr operand);
  Result<ExpressionPtr> parse_attribute(ExpressionPtr object);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr object);
  Result<ExpressionPtr> parse_filters_and_tests(ExpressionPtr operand);
  Result<FilterCall> parse_filter(int& depth);
  Result<ExpressionPtr> parse_test(ExpressionPtr subject);
  Result<ExpressionPtr> parse_call(ExpressionPtr callee);
  [[nodiscard]] bool at_tuple_end() const;

  TokenCursor& cursor_;
  const int max_depth_;
  int depth_ = 0;  // current nesting of calls
};

}  // namespace heddle::chat
