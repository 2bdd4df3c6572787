// SPDX-License-Identifier: Apache-2.0
#include "chat/expression_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

namespace heddle::chat {

namespace {

int depth_of(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}

int depth_of(const CallArguments& arguments) {
  int depth = std::max(depth_of(arguments.more_positional), depth_of(arguments.more_named));
  for (const ExpressionPtr& value : arguments.positional) depth = std::max(depth, depth_of(value));
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, depth_of(value));
  return depth;
}

// Counts a level of recursion as long as this object exists.
class Level {
 public:
  explicit Level(int& depth) : depth_(depth) { ++depth_; }

  ~Level() { --depth_; }

  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

std::string too_deep(int limit) {
  return fmt::format("the expression is nested more than {} levels deep (max_nesting_depth)",
                     limit);
}

// The levels of arithmetic operators: + -, then ~ (not in Arithmetic), then * / // %, then **.
constexpr int kConcatenationLevel = 1;
constexpr int kPowerLevel = 3;

// Names are compared pairwise, so their number is bounded.
constexpr size_t kMaxNamedArguments = 256;

std::optional<Arithmetic> operator_of_level(const Token& token, int level) {
  if (token.kind != TokenKind::kOperator) return {};
  const std::string& symbol = token.text;
  if (level == 0) {
    if (symbol == "+") return Arithmetic::kAdd;
    if (symbol == "-") return Arithmetic::kSubtract;
  } else if (level == 2) {
    if (symbol == "*") return Arithmetic::kMultiply;
    if (symbol == "/") return Arithmetic::kDivide;
    if (symbol == "//") return Arithmetic::kFloorDivide;
    if (symbol == "%") return Arithmetic::kModulo;
  } else if (level == kPowerLevel && symbol == "**") {
    return Arithmetic::kPower;
  }
  return {};
}

std::optional<Comparison> comparison_of(const Token& token) {
  if (token.is_name("in")) return Comparison::kIn;
  if (token.kind != TokenKind::kOperator) return {};
  if (token.text == "==") return Comparison::kEqual;
  if (token.text == "!=") return Comparison::kNotEqual;
  if (token.text == "<") return Comparison::kLess;
  if (token.text == "<=") return Comparison::kLessOrEqual;
  if (token.text == ">") return Comparison::kGreater;
  if (token.text == ">=") return Comparison::kGreaterOrEqual;
  return {};
}

}  // namespace

template <typename Node>
Result<ExpressionPtr> ExpressionParser::make(Position at, int depth_below, Node node) {
  if (depth_below >= max_depth_) return cursor_.fail(at, too_deep(max_depth_));
  auto expression = std::make_unique<Expression>();
  expression->at = at;
  expression->depth = depth_below + 1;
  expression->node = std::move(node);
  return expression;
}

Result<ExpressionPtr> ExpressionParser::parse_expression() {
  const Level level(depth_);
  if (depth_ > max_depth_) return cursor_.fail(cursor_.peek().at, too_deep(max_depth_));
  HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr result, parse_or());
  while (cursor_.peek().is_name("if")) {
    const Position at = cursor_.next().at;
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr condition, parse_or());
    ExpressionPtr otherwise;
    if (cursor_.accept_name("else")) {
      HEDDLE_ASSIGN_OR_RETURN(otherwise, parse_expression());
    }
    const int depth = std::max({depth_of(result), depth_of(condition), depth_of(otherwise)});
    HEDDLE_ASSIGN_OR_RETURN(result, make(at, depth,
                                         Conditional{.condition = std::move(condition),
                                                     .then = std::move(result),
                                                     .otherwise = std::move(otherwise)}));
  }
  return result;
}

bool ExpressionParser::at_tuple_end() const {
  const Token& token = cursor_.peek();
  return token.kind == TokenKind::kOutputEnd || token.kind == TokenKind::kBlockEnd ||
         token.is_operator(")");
}

Result<ExpressionPtr> ExpressionParser::parse_tuple(bool with_conditionals) {
  const Position at = cursor_.peek().at;
  std::vector<ExpressionPtr> items;
  int depth = 0;
  bool is_tuple = false;
  while (!at_tuple_end()) {
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr item,
                            with_conditionals ? parse_expression() : parse_or());
    depth = std::max(depth, depth_of(item));
    items.push_back(std::move(item));
    if (!cursor_.accept_operator(",")) break;
    is_tuple = true;
  }
  if (items.empty()) {
    return cursor_.fail(
        at, fmt::format("expected an expression, found {}", cursor_.peek().description()));
  }
  if (!is_tuple) return std::move(items.front());
  return make(at, depth, SequenceDisplay{.flavor = Flavor::kTuple, .items = std::move(items)});
}

Result<ExpressionPtr> ExpressionParser::parse_or() {
  HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr left, parse_and());
  while (cursor_.peek().is_name("or")) {
    const Position at = cursor_.next().at;
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr right, parse_and());
    const int depth = std::max(depth_of(left), depth_of(right));
    HEDDLE_ASSIGN_OR_RETURN(
        left, make(at, depth,
                   Logical{.is_and = false, .left = std::move(left), .right = std::move(right)}));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_and() {
  HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr left, parse_not());
  while (cursor_.peek().is_name("and")) {
    const Position at = cursor_.next().at;
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr right, parse_not());
    const int depth = std::max(depth_of(left), depth_of(right));
    HEDDLE_ASSIGN_OR_RETURN(
        left, make(at, depth,
                   Logical{.is_and = true, .left = std::move(left), .right = std::move(right)}));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_not() {
  if (!cursor_.peek().is_name("not")) return parse_comparison();
  const Level level(depth_);
  const Position at = cursor_.next().at;
  if (depth_ > max_depth_) return cursor_.fail(at, too_deep(max_depth_));
  HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_not());
  const int depth = depth_of(operand);
  return make(at, depth, Unary{.operation = UnaryOperator::kNot, .operand = std::move(operand)});
}

Result<ExpressionPtr> ExpressionParser::parse_comparison() {
  const Position at = cursor_.peek().at;
  HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr first, parse_arithmetic(0));
  int depth = depth_of(first);
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  while (true) {
    std::optional<Comparison> comparison = comparison_of(cursor_.peek());
    if (comparison) {
      cursor_.next();
    } else if (cursor_.peek().is_name("not") && cursor_.peek(1).is_name("in")) {
      comparison = Comparison::kNotIn;
      cursor_.next();
      cursor_.next();
    } else {
      break;
    }
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_arithmetic(0));
    depth = std::max(depth, depth_of(operand));
    rest.emplace_back(*comparison, std::move(operand));
  }
  if (rest.empty()) return first;
  return make(at, depth, ComparisonChain{.first = std::move(first), .rest = std::move(rest)});
}

Result<ExpressionPtr> ExpressionParser::parse_arithmetic(int level) {
  if (level > kPowerLevel) return parse_unary(true);
  HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr left, parse_arithmetic(level + 1));
  if (level == kConcatenationLevel) {
    if (!cursor_.peek().is_operator("~")) return left;
    const Position at = cursor_.peek().at;
    int depth = depth_of(left);
    std::vector<ExpressionPtr> parts;
    parts.push_back(std::move(left));
    while (cursor_.accept_operator("~")) {
      HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr part, parse_arithmetic(level + 1));
      depth = std::max(depth, depth_of(part));
      parts.push_back(std::move(part));
    }
    return make(at, depth, Concatenation{.parts = std::move(parts)});
  }
  while (const std::optional<Arithmetic> operation = operator_of_level(cursor_.peek(), level)) {
    const Position at = cursor_.next().at;
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr right, parse_arithmetic(level + 1));
    const int depth = std::max(depth_of(left), depth_of(right));
    HEDDLE_ASSIGN_OR_RETURN(
        left,
        make(at, depth,
             Binary{.operation = *operation, .left = std::move(left), .right = std::move(right)}));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr result;
  const Token& token = cursor_.peek();
  if (token.is_operator("-") || token.is_operator("+")) {
    const Level level(depth_);
    if (depth_ > max_depth_) return cursor_.fail(token.at, too_deep(max_depth_));
    const UnaryOperator operation =
        token.text == "-" ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    const Position at = cursor_.next().at;
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_unary(false));
    const int depth = depth_of(operand);
    HEDDLE_ASSIGN_OR_RETURN(
        result, make(at, depth, Unary{.operation = operation, .operand = std::move(operand)}));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(result, parse_primary());
  }
  HEDDLE_ASSIGN_OR_RETURN(result, parse_postfix(std::move(result)));
  if (!with_filters) return result;
  return parse_filters_and_tests(std::move(result));
}

Result<ExpressionPtr> ExpressionParser::parse_primary() {
  const Token& token = cursor_.peek();
  switch (token.kind) {
    case TokenKind::kName: {
      cursor_.next();
      const std::string& name = token.text;
      if (name == "true" || name == "True") return make(token.at, 0, Literal{Value::boolean(true)});
      if (name == "false" || name == "False")
        return make(token.at, 0, Literal{Value::boolean(false)});
      if (name == "none" || name == "None") return make(token.at, 0, Literal{Value::none()});
      special_names.varargs = special_names.varargs || name == "varargs";
      special_names.kwargs = special_names.kwargs || name == "kwargs";
      special_names.caller = special_names.caller || name == "caller";
      return make(token.at, 0, Name{name});
    }
    case TokenKind::kString: {
      std::string text;
      while (cursor_.peek().kind == TokenKind::kString) text += cursor_.next().text;
      return make(token.at, 0, Literal{Value::string(std::move(text))});
    }
    case TokenKind::kInteger:
      cursor_.next();
      return make(token.at, 0, Literal{Value::integer(token.integer)});
    case TokenKind::kFloat:
      cursor_.next();
      return make(token.at, 0, Literal{Value::floating(token.number)});
    default:
      break;
  }
  if (token.is_operator("(")) return parse_parentheses();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  return cursor_.fail(token.at,
                      fmt::format("expected an expression, found {}", token.description()));
}

Result<ExpressionPtr> ExpressionParser::parse_parentheses() {
  const Position at = cursor_.next().at;
  if (cursor_.accept_operator(")"))
    return make(at, 0, SequenceDisplay{.flavor = Flavor::kTuple, .items = {}});
  HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr inside, parse_tuple(true));
  HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(")"));
  return inside;
}

Result<ExpressionPtr> ExpressionParser::parse_list() {
  const Position at = cursor_.next().at;
  std::vector<ExpressionPtr> items;
  int depth = 0;
  while (!cursor_.accept_operator("]")) {
    if (!items.empty()) {
      HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(","));
      if (cursor_.accept_operator("]")) break;
    }
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr item, parse_expression());
    depth = std::max(depth, depth_of(item));
    items.push_back(std::move(item));
  }
  return make(at, depth, SequenceDisplay{.flavor = Flavor::kList, .items = std::move(items)});
}

Result<ExpressionPtr> ExpressionParser::parse_dict() {
  const Position at = cursor_.next().at;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  int depth = 0;
  while (!cursor_.accept_operator("}")) {
    if (!entries.empty()) {
      HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(","));
      if (cursor_.accept_operator("}")) break;
    }
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr key, parse_expression());
    HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(":"));
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr value, parse_expression());
    depth = std::max({depth, depth_of(key), depth_of(value)});
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make(at, depth, DictDisplay{.entries = std::move(entries)});
}

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    const Token& token = cursor_.peek();
    if (token.is_operator(".")) {
      HEDDLE_ASSIGN_OR_RETURN(operand, parse_attribute(std::move(operand)));
    } else if (token.is_operator("[")) {
      HEDDLE_ASSIGN_OR_RETURN(operand, parse_subscript(std::move(operand)));
    } else if (token.is_operator("(")) {
      HEDDLE_ASSIGN_OR_RETURN(operand, parse_call(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_attribute(ExpressionPtr object) {
  cursor_.next();
  const Token& name = cursor_.next();
  const int depth = depth_of(object);
  if (name.kind == TokenKind::kName) {
    return make(name.at, depth, Attribute{.object = std::move(object), .name = name.text});
  }
  if (name.kind == TokenKind::kInteger) {
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr key,
                            make(name.at, 0, Literal{Value::integer(name.integer)}));
    return make(name.at, std::max(depth, 1),
                Item{.object = std::move(object), .key = std::move(key)});
  }
  return cursor_.fail(name.at,
                      fmt::format("expected a name behind '.', found {}", name.description()));
}

Result<ExpressionPtr> ExpressionParser::parse_subscript(ExpressionPtr object) {
  const Position at = cursor_.next().at;
  std::array<ExpressionPtr, 3> parts;  // a key, or the begin, end and step of a slice
  size_t num_colons = 0;
  while (!cursor_.accept_operator("]")) {
    if (num_colons < 2 && cursor_.accept_operator(":")) {
      ++num_colons;
      continue;
    }
    if (parts[num_colons] != nullptr) {
      return cursor_.fail(cursor_.peek().at,
                          fmt::format("expected ']', found {}", cursor_.peek().description()));
    }
    HEDDLE_ASSIGN_OR_RETURN(parts[num_colons], parse_expression());
  }
  int depth = depth_of(object);
  for (const ExpressionPtr& part : parts) depth = std::max(depth, depth_of(part));
  if (num_colons > 0) {
    return make(at, depth,
                Slice{.object = std::move(object),
                      .begin = std::move(parts[0]),
                      .end = std::move(parts[1]),
                      .step = std::move(parts[2])});
  }
  if (parts[0] == nullptr) return cursor_.fail(at, "expected a key between '[' and ']'");
  return make(at, depth, Item{.object = std::move(object), .key = std::move(parts[0])});
}

Result<ExpressionPtr> ExpressionParser::parse_call(ExpressionPtr callee) {
  const Position at = cursor_.peek().at;
  HEDDLE_ASSIGN_OR_RETURN(CallArguments arguments, parse_call_arguments());
  const int depth = std::max(depth_of(callee), depth_of(arguments));
  return make(at, depth, Call{.callee = std::move(callee), .arguments = std::move(arguments)});
}

Result<CallArguments> ExpressionParser::parse_call_arguments() {
  HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator("("));
  CallArguments arguments;
  bool is_first = true;
  while (!cursor_.accept_operator(")")) {
    if (!is_first) {
      HEDDLE_RETURN_IF_ERROR(cursor_.expect_operator(","));
      if (cursor_.accept_operator(")")) break;
    }
    is_first = false;
    const Token& token = cursor_.peek();
    const bool has_star = arguments.more_positional != nullptr || arguments.more_named != nullptr;
    if (token.is_operator("*") && !has_star) {
      cursor_.next();
      HEDDLE_ASSIGN_OR_RETURN(arguments.more_positional, parse_expression());
    } else if (token.is_operator("**") && arguments.more_named == nullptr) {
      cursor_.next();
      HEDDLE_ASSIGN_OR_RETURN(arguments.more_named, parse_expression());
    } else if (token.kind == TokenKind::kName && cursor_.peek(1).is_operator("=") &&
               arguments.more_named == nullptr) {
      cursor_.next();
      cursor_.next();
      HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr value, parse_expression());
      for (const auto& [name, earlier] : arguments.named) {
        if (name == token.text) {
          return cursor_.fail(token.at, fmt::format("the argument '{}' is repeated", name));
        }
      }
      if (arguments.named.size() >= kMaxNamedArguments) {
        return cursor_.fail(token.at,
                            fmt::format("more than {} named arguments", kMaxNamedArguments));
      }
      arguments.named.emplace_back(token.text, std::move(value));
    } else if (!has_star && arguments.named.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr value, parse_expression());
      arguments.positional.push_back(std::move(value));
    } else {
      return cursor_.fail(token.at, "a positional argument stands behind a named one, * or **");
    }
  }
  return arguments;
}

Result<ExpressionPtr> ExpressionParser::parse_filters_and_tests(ExpressionPtr operand) {
  while (true) {
    const Token& token = cursor_.peek();
    if (token.is_operator("|")) {
      cursor_.next();
      const Position at = cursor_.peek().at;
      int depth = depth_of(operand);
      HEDDLE_ASSIGN_OR_RETURN(FilterCall filter, parse_filter(depth));
      filter.input = std::move(operand);
      HEDDLE_ASSIGN_OR_RETURN(operand, make(at, depth, std::move(filter)));
    } else if (token.is_name("is")) {
      HEDDLE_ASSIGN_OR_RETURN(operand, parse_test(std::move(operand)));
    } else if (token.is_operator("(")) {
      HEDDLE_ASSIGN_OR_RETURN(operand, parse_call(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<FilterCall> ExpressionParser::parse_filter(int& depth) {
  HEDDLE_ASSIGN_OR_RETURN(std::string name, cursor_.expect_identifier("the name of a filter"));
  while (cursor_.accept_operator(".")) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string part,
                            cursor_.expect_identifier("the name of a filter"));
    name += '.' + part;
  }
  CallArguments arguments;
  if (cursor_.peek().is_operator("(")) {
    HEDDLE_ASSIGN_OR_RETURN(arguments, parse_call_arguments());
  }
  depth = std::max(depth, depth_of(arguments));
  const FilterFunction function = find_filter(name);
  return FilterCall{.input = nullptr,
                    .name = std::move(name),
                    .function = function,
                    .arguments = std::move(arguments)};
}

Result<std::vector<FilterCall>> ExpressionParser::parse_block_filters(bool starts_with_bar) {
  std::vector<FilterCall> filters;
  if (starts_with_bar && !cursor_.accept_operator("|")) return filters;
  do {
    int depth = 0;
    HEDDLE_ASSIGN_OR_RETURN(FilterCall filter, parse_filter(depth));
    filters.push_back(std::move(filter));
  } while (cursor_.accept_operator("|"));
  return filters;
}

Result<ExpressionPtr> ExpressionParser::parse_test(ExpressionPtr subject) {
  const Position at = cursor_.next().at;
  const bool negated = cursor_.accept_name("not");
  HEDDLE_ASSIGN_OR_RETURN(std::string name, cursor_.expect_identifier("the name of a test"));
  while (cursor_.accept_operator(".")) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string part,
                            cursor_.expect_identifier("the name of a test"));
    name += '.' + part;
  }
  CallArguments arguments;
  const Token& token = cursor_.peek();
  const bool is_literal = token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
                          token.kind == TokenKind::kFloat || token.is_operator("[") ||
                          token.is_operator("{");
  const bool is_name = token.kind == TokenKind::kName && !token.is_name("else") &&
                       !token.is_name("or") && !token.is_name("and");
  if (token.is_operator("(")) {
    HEDDLE_ASSIGN_OR_RETURN(arguments, parse_call_arguments());
  } else if (token.is_name("is")) {
    return cursor_.fail(token.at, "tests cannot be chained with 'is'");
  } else if (is_literal || is_name) {
    // A test may have one argument without parentheses: x is divisibleby 3.
    HEDDLE_ASSIGN_OR_RETURN(ExpressionPtr argument, parse_primary());
    HEDDLE_ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
    arguments.positional.push_back(std::move(argument));
  }
  const int depth = std::max(depth_of(subject), depth_of(arguments));
  const PredicateFunction function = find_predicate(name);
  return make(at, depth,
              TestCall{.subject = std::move(subject),
                       .name = std::move(name),
                       .function = function,
                       .arguments = std::move(arguments),
                       .negated = negated});
}

}  // namespace heddle::chat
