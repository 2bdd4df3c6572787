// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/arithmetic.h"
#include "chat/compare.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"

namespace heddle::chat {

namespace {

constexpr std::array<std::pair<std::string_view, Builtin>, 5> kBuiltins = {{
    {"range", Builtin::kRange},
    {"dict", Builtin::kDict},
    {"namespace", Builtin::kNamespace},
    {"raise_exception", Builtin::kRaiseException},
    {"strftime_now", Builtin::kStrftimeNow},
}};

}  // namespace

Result<Value> Interpreter::evaluate(const Expression& expression) {
  ++level_;
  const Status entered = enter_level(expression.at);
  if (!entered.ok()) return entered;
  Result<Value> result =
      std::visit([this](const auto& node) { return evaluate_node(node); }, expression.node);
  --level_;
  if (!result.ok()) return locate(expression.at, result.status());
  return result;
}

Result<Value> Interpreter::evaluate_node(const Literal& literal) { return literal.value; }

Result<Value> Interpreter::look_up(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return found->second;
  }
  if (const Value* found = context_.as_dict().find(name)) return *found;
  for (const auto& [known, function] : kBuiltins) {
    if (known == name) return Value::from(function);
  }
  return Value::undefined(fmt::format("{} is undefined", repr_of(name)));
}

Result<Value> Interpreter::evaluate_node(const Name& name) { return look_up(name.name); }

Result<Value> Interpreter::evaluate_node(const Attribute& attribute) {
  HEDDLE_ASSIGN_OR_RETURN(const Value object, evaluate(*attribute.object));
  return get_attribute(&budget_, object, attribute.name);
}

Result<Value> Interpreter::evaluate_node(const Item& item) {
  HEDDLE_ASSIGN_OR_RETURN(const Value object, evaluate(*item.object));
  HEDDLE_ASSIGN_OR_RETURN(const Value key, evaluate(*item.key));
  return get_item(&budget_, object, key);
}

Result<Value> Interpreter::evaluate_node(const Slice& slice) {
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

Result<Value> Interpreter::evaluate_node(const Call& node) {
  HEDDLE_ASSIGN_OR_RETURN(const Value callee, evaluate(*node.callee));
  HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(node.arguments));
  return call(callee, arguments);
}

Result<Value> Interpreter::evaluate_node(const FilterCall& filter) {
  if (filter.function == nullptr) {
    return invalid_argument(fmt::format("there is no filter named '{}'", filter.name));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Value input, evaluate(*filter.input));
  HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(filter.arguments));
  return filter.function(&budget_, input, arguments);
}

Result<Value> Interpreter::evaluate_node(const TestCall& test) {
  if (test.function == nullptr) {
    return invalid_argument(fmt::format("there is no test named '{}'", test.name));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Value subject, evaluate(*test.subject));
  HEDDLE_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(test.arguments));
  HEDDLE_ASSIGN_OR_RETURN(const bool passes, test.function(&budget_, subject, arguments));
  return Value::boolean(passes != test.negated);
}

Result<Value> Interpreter::evaluate_node(const Unary& unary) {
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

Result<Value> Interpreter::evaluate_node(const Binary& binary) {
  HEDDLE_ASSIGN_OR_RETURN(const Value left, evaluate(*binary.left));
  HEDDLE_ASSIGN_OR_RETURN(const Value right, evaluate(*binary.right));
  return arithmetic(&budget_, binary.operation, left, right);
}

Result<Value> Interpreter::evaluate_node(const Logical& logical) {
  HEDDLE_ASSIGN_OR_RETURN(Value left, evaluate(*logical.left));
  if (left.truthy() != logical.is_and) return left;
  return evaluate(*logical.right);
}

Result<Value> Interpreter::evaluate_node(const ComparisonChain& chain) {
  HEDDLE_ASSIGN_OR_RETURN(Value left, evaluate(*chain.first));
  for (const auto& [comparison, expression] : chain.rest) {
    HEDDLE_ASSIGN_OR_RETURN(Value right, evaluate(*expression));
    HEDDLE_ASSIGN_OR_RETURN(const bool holds, compare(&budget_, comparison, left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_node(const Concatenation& concatenation) {
  TextWriter text(&budget_);
  for (const ExpressionPtr& part : concatenation.parts) {
    HEDDLE_ASSIGN_OR_RETURN(const Value value, evaluate(*part));
    HEDDLE_RETURN_IF_ERROR(write_str(text, value));
  }
  return text.finish();
}

Result<Value> Interpreter::evaluate_node(const Conditional& conditional) {
  HEDDLE_ASSIGN_OR_RETURN(const Value condition, evaluate(*conditional.condition));
  if (condition.truthy()) return evaluate(*conditional.then);
  if (conditional.otherwise != nullptr) return evaluate(*conditional.otherwise);
  return Value::undefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

Result<Value> Interpreter::evaluate_node(const SequenceDisplay& display) {
  std::vector<Value> items;
  items.reserve(display.items.size());
  for (const ExpressionPtr& expression : display.items) {
    HEDDLE_ASSIGN_OR_RETURN(Value item, evaluate(*expression));
    items.push_back(std::move(item));
  }
  return make_sequence(&budget_, display.flavor, std::move(items));
}

Result<Value> Interpreter::evaluate_node(const DictDisplay& display) {
  std::vector<Dict::Entry> entries;
  entries.reserve(display.entries.size());
  for (const auto& [key_expression, value_expression] : display.entries) {
    HEDDLE_ASSIGN_OR_RETURN(Value key, evaluate(*key_expression));
    HEDDLE_ASSIGN_OR_RETURN(Value value, evaluate(*value_expression));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make_dict(&budget_, std::move(entries));
}

}  // namespace heddle::chat
