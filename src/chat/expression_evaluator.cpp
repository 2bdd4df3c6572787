// SPDX-License-Identifier: Apache-2.0
#include "chat/expression_evaluator.h"

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/callables.h"
#include "chat/operators.h"
#include "chat/python_text.h"

namespace heddle::chat {

Result<Value> ExpressionEvaluator::evaluate(const Expression& expression) {
  const RenderTrace::Level level(trace_);
  HEDDLE_RETURN_IF_ERROR(trace_.count_step(expression.at));
  Result<Value> result =
      std::visit([this](const auto& node) { return evaluate_node(node); }, expression.node);
  if (!result.ok()) return trace_.locate(expression.at, result.status());
  return result;
}

Result<Value> ExpressionEvaluator::evaluate_node(const Literal& literal) { return literal.value; }

Result<Value> ExpressionEvaluator::evaluate_node(const Name& name) {
  return scopes_.look_up(name.name);
}

Result<Value> ExpressionEvaluator::evaluate_node(const Attribute& attribute) {
  HEDDLE_ASSIGN_OR_RETURN(const Value object, evaluate(*attribute.object));
  return get_attribute(&budget_, object, attribute.name);
}

Result<Value> ExpressionEvaluator::evaluate_node(const Item& item) {
  HEDDLE_ASSIGN_OR_RETURN(const Value object, evaluate(*item.object));
  HEDDLE_ASSIGN_OR_RETURN(const Value key, evaluate(*item.key));
  return get_item(&budget_, object, key);
}

Result<Value> ExpressionEvaluator::evaluate_node(const Slice& slice) {
  HEDDLE_ASSIGN_OR_RETURN(const Value object, evaluate(*slice.object));
  const std::array<const Expression*, 3> parts = {slice.begin.get(), slice.end.get(),
                                                  slice.step.get()};
  std::array<Value, 3> values;
  std::array<const Value*, 3> given{};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == nullptr) continue;
    HEDDLE_ASSIGN_OR_RETURN(values[i], evaluate(*parts[i]));
    given[i] = &values[i];
  }
  return get_slice(&budget_, object, given[0], given[1], given[2]);
}

Result<Value> ExpressionEvaluator::evaluate_node(const Call& node) {
  HEDDLE_ASSIGN_OR_RETURN(const Value callee, evaluate(*node.callee));
  HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(node.arguments));
  return call(callee, arguments);
}

Result<Value> ExpressionEvaluator::evaluate_node(const FilterCall& filter) {
  if (filter.function == nullptr) {
    return invalid_argument(fmt::format("there is no filter named '{}'", filter.name));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Value input, evaluate(*filter.input));
  HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(filter.arguments));
  return filter.function(&budget_, input, arguments);
}

Result<Value> ExpressionEvaluator::evaluate_node(const TestCall& test) {
  if (test.function == nullptr) {
    return invalid_argument(fmt::format("there is no test named '{}'", test.name));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Value subject, evaluate(*test.subject));
  HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(test.arguments));
  HEDDLE_ASSIGN_OR_RETURN(const bool passes, test.function(&budget_, subject, arguments));
  return Value::boolean(passes != test.negated);
}

Result<Value> ExpressionEvaluator::evaluate_node(const Unary& unary) {
  HEDDLE_ASSIGN_OR_RETURN(const Value operand, evaluate(*unary.operand));
  switch (unary.operation) {
    case UnaryOperator::kNot:
      return Value::boolean(!operand.truthy());
    case UnaryOperator::kNegate:
      return negated(operand);
    case UnaryOperator::kPlus:
      return with_plus(operand);
  }
  return internal_error("unknown unary operator");
}

Result<Value> ExpressionEvaluator::evaluate_node(const Binary& binary) {
  HEDDLE_ASSIGN_OR_RETURN(const Value left, evaluate(*binary.left));
  HEDDLE_ASSIGN_OR_RETURN(const Value right, evaluate(*binary.right));
  return arithmetic(&budget_, binary.operation, left, right);
}

Result<Value> ExpressionEvaluator::evaluate_node(const Logical& logical) {
  HEDDLE_ASSIGN_OR_RETURN(Value left, evaluate(*logical.left));
  if (left.truthy() != logical.is_and) return left;
  return evaluate(*logical.right);
}

Result<Value> ExpressionEvaluator::evaluate_node(const ComparisonChain& chain) {
  HEDDLE_ASSIGN_OR_RETURN(Value left, evaluate(*chain.first));
  for (const auto& [comparison, expression] : chain.rest) {
    HEDDLE_ASSIGN_OR_RETURN(Value right, evaluate(*expression));
    HEDDLE_ASSIGN_OR_RETURN(const bool holds, compare(&budget_, comparison, left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> ExpressionEvaluator::evaluate_node(const Concatenation& concatenation) {
  TextWriter text(&budget_);
  for (const ExpressionPtr& part : concatenation.parts) {
    HEDDLE_ASSIGN_OR_RETURN(const Value value, evaluate(*part));
    HEDDLE_RETURN_IF_ERROR(write_str(text, value));
  }
  return text.finish();
}

Result<Value> ExpressionEvaluator::evaluate_node(const Conditional& conditional) {
  HEDDLE_ASSIGN_OR_RETURN(const Value condition, evaluate(*conditional.condition));
  if (condition.truthy()) return evaluate(*conditional.then);
  if (conditional.otherwise != nullptr) return evaluate(*conditional.otherwise);
  return Value::undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

Result<Value> ExpressionEvaluator::evaluate_node(const SequenceDisplay& display) {
  std::vector<Value> items;
  items.reserve(display.items.size());
  for (const ExpressionPtr& expression : display.items) {
    HEDDLE_ASSIGN_OR_RETURN(Value item, evaluate(*expression));
    items.push_back(std::move(item));
  }
  return make_sequence(&budget_, display.flavor, std::move(items));
}

Result<Value> ExpressionEvaluator::evaluate_node(const DictDisplay& display) {
  std::vector<Dict::Entry> entries;
  entries.reserve(display.entries.size());
  for (const auto& [key_expression, value_expression] : display.entries) {
    HEDDLE_ASSIGN_OR_RETURN(Value key, evaluate(*key_expression));
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluate(*value_expression));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make_dict(&budget_, std::move(entries));
}

Result<Arguments> ExpressionEvaluator::evaluate_arguments(const CallArguments& arguments) {
  Arguments result;
  result.positional.reserve(arguments.positional.size());
  for (const ExpressionPtr& expression : arguments.positional) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluate(*expression));
    result.positional.push_back(std::move(value));
  }
  if (arguments.more_positional != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(const Value more, evaluate(*arguments.more_positional));
    HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, iterate(&budget_, more));
    HEDDLE_RETURN_IF_ERROR(budget_.fits(items->items.size() * sizeof(Value)));
    HEDDLE_RETURN_IF_ERROR(budget_.touch(items->items.size() * sizeof(Value)));
    result.positional.insert(result.positional.end(), items->items.begin(), items->items.end());
  }
  HEDDLE_RETURN_IF_ERROR(append_named(arguments, result));
  return result;
}

Status ExpressionEvaluator::append_named(const CallArguments& arguments, Arguments& result) {
  for (const auto& [name, expression] : arguments.named) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluate(*expression));
    result.named.emplace_back(name, std::move(value));
  }
  if (arguments.more_named == nullptr) return {};
  HEDDLE_ASSIGN_OR_RETURN(const Value more, evaluate(*arguments.more_named));
  if (!more.is(Kind::kDict)) {
    return invalid_argument(
        fmt::format("the argument behind ** must be a dict, not '{}'", more.type_name()));
  }
  HEDDLE_RETURN_IF_ERROR(budget_.fits(more.as_dict().size() * sizeof(Dict::Entry)));
  HEDDLE_RETURN_IF_ERROR(
      budget_.step(static_cast<int64_t>(more.as_dict().size() * (arguments.named.size() / 8 + 1))));
  for (const auto& [key, value] : more.as_dict().entries()) {
    if (!key.is_string()) return invalid_argument("the keys of the dict behind ** must be strings");
    for (const auto& [name, expression] : arguments.named) {
      if (name == key.as_string()) {
        return invalid_argument(fmt::format("got multiple values for argument '{}'", name));
      }
    }
    result.named.emplace_back(key.as_string(), value);
  }
  return {};
}

Result<Value> ExpressionEvaluator::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      return invalid_argument(callee.undefined_reason());
    case Kind::kMacro:
      return macros_.call_macro(*callee.as_macro(), arguments);
    case Kind::kMethod:
      return call_method(&budget_, callee.as_method(), arguments);
    case Kind::kBuiltin:
      return functions_.call(callee.as_builtin(), arguments);
    default:
      return invalid_argument(fmt::format("'{}' object is not callable", callee.type_name()));
  }
}

}  // namespace heddle::chat
