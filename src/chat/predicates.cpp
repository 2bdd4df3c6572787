// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <utility>

#include <fmt/format.h>

#include "chat/callables.h"
#include "chat/operators.h"
#include "chat/python_text.h"

namespace heddle::chat {

namespace {

// ---- Tests of a value's kind, without arguments ----

bool is_defined(const Value& value) { return !value.is_undefined(); }

bool is_undefined(const Value& value) { return value.is_undefined(); }

bool is_none(const Value& value) { return value.is_none(); }

bool is_boolean(const Value& value) { return value.is(Kind::kBool); }

bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_bool(); }

bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.as_bool(); }

bool is_integer(const Value& value) { return value.is(Kind::kInt) || value.is(Kind::kBigInt); }

bool is_float(const Value& value) { return value.is(Kind::kFloat); }

bool is_number(const Value& value) { return value.is_number(); }

bool is_string(const Value& value) { return value.is_string(); }

bool is_mapping(const Value& value) { return value.is(Kind::kDict); }

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::kSequence) ||
         value.is(Kind::kDict) || value.is(Kind::kLoop);
}

// A sequence with a length and items: not a view of a dict and not a generator.
bool is_sequence(const Value& value) {
  if (value.is(Kind::kSequence)) return value.as_sequence()->flavor <= Flavor::kRange;
  return value.is_undefined() || value.is_string() || value.is(Kind::kDict);
}

// Calling undefined fails, but Jinja counts it as callable.
bool is_callable(const Value& value) {
  return value.is_undefined() || value.is(Kind::kMacro) || value.is(Kind::kMethod) ||
         value.is(Kind::kBuiltin);
}

template <bool (*kIs)(const Value&)>
Result<bool> of_kind(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "the test", {}).status());
  HEDDLE_RETURN_IF_ERROR(budget->step());
  return kIs(subject);
}

// ---- Tests of a value, with arguments ----

Result<bool> is_divisible(Budget* budget, const Value& subject, int64_t divisor, bool expected) {
  if (subject.is_undefined()) return invalid_argument(subject.undefined_reason());
  if (!subject.is_number()) {
    return invalid_argument(fmt::format("the test needs a number, not '{}'", subject.type_name()));
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const Value rest, arithmetic(budget, Arithmetic::kModulo, subject, Value::integer(divisor)));
  return !rest.truthy() == expected;
}

Result<bool> is_odd(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "odd", {}).status());
  if (subject.is_undefined()) return invalid_argument(subject.undefined_reason());
  HEDDLE_ASSIGN_OR_RETURN(const Value rest,
                          arithmetic(budget, Arithmetic::kModulo, subject, Value::integer(2)));
  return equal(budget, rest, Value::integer(1));
}

Result<bool> is_even(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "even", {}).status());
  return is_divisible(budget, subject, 2, true);
}

Result<bool> is_divisible_by(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "divisibleby", {"num"}, 1));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t divisor, args.integer(0, 1));
  return is_divisible(budget, subject, divisor, true);
}

template <Comparison kComparison>
Result<bool> compares(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "the test", {"other"}, 1));
  return compare(budget, kComparison, subject, *args.get(0));
}

Result<bool> is_same(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "sameas", {"other"}, 1));
  const Value& other = *args.get(0);
  if (subject.kind() != other.kind()) return false;
  if (subject.is(Kind::kSequence)) return subject.as_sequence() == other.as_sequence();
  if (subject.is(Kind::kDict)) return &subject.as_dict() == &other.as_dict();
  return equal(budget, subject, other);
}

// 'is lower' and 'is upper' call the method on str(subject).
Result<bool> asks_text(Budget* budget, const Value& subject, std::string_view method) {
  HEDDLE_ASSIGN_OR_RETURN(const Value text, to_string_value(budget, subject));
  HEDDLE_ASSIGN_OR_RETURN(const Value answer, find_string_method(method)(budget, text, {}));
  return answer.truthy();
}

Result<bool> is_lower_text(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "lower", {}).status());
  return asks_text(budget, subject, "islower");
}

Result<bool> is_upper_text(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "upper", {}).status());
  return asks_text(budget, subject, "isupper");
}

Result<bool> names_filter(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "filter", {}).status());
  HEDDLE_RETURN_IF_ERROR(budget->step());
  return subject.is_string() && find_filter(subject.as_string()) != nullptr;
}

Result<bool> names_test(Budget* budget, const Value& subject, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "test", {}).status());
  HEDDLE_RETURN_IF_ERROR(budget->step());
  return subject.is_string() && find_predicate(subject.as_string()) != nullptr;
}

constexpr std::array<std::pair<std::string_view, PredicateFunction>, 38> kPredicates = {{
    {"defined", of_kind<is_defined>},
    {"undefined", of_kind<is_undefined>},
    {"none", of_kind<is_none>},
    {"boolean", of_kind<is_boolean>},
    {"true", of_kind<is_true>},
    {"false", of_kind<is_false>},
    {"integer", of_kind<is_integer>},
    {"float", of_kind<is_float>},
    {"number", of_kind<is_number>},
    {"string", of_kind<is_string>},
    {"mapping", of_kind<is_mapping>},
    {"iterable", of_kind<is_iterable>},
    {"sequence", of_kind<is_sequence>},
    {"callable", of_kind<is_callable>},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible_by},
    {"==", compares<Comparison::kEqual>},
    {"eq", compares<Comparison::kEqual>},
    {"equalto", compares<Comparison::kEqual>},
    {"!=", compares<Comparison::kNotEqual>},
    {"ne", compares<Comparison::kNotEqual>},
    {"<", compares<Comparison::kLess>},
    {"lt", compares<Comparison::kLess>},
    {"lessthan", compares<Comparison::kLess>},
    {"<=", compares<Comparison::kLessOrEqual>},
    {"le", compares<Comparison::kLessOrEqual>},
    {">", compares<Comparison::kGreater>},
    {"gt", compares<Comparison::kGreater>},
    {"greaterthan", compares<Comparison::kGreater>},
    {">=", compares<Comparison::kGreaterOrEqual>},
    {"ge", compares<Comparison::kGreaterOrEqual>},
    {"in", compares<Comparison::kIn>},
    {"sameas", is_same},
    {"lower", is_lower_text},
    {"upper", is_upper_text},
    {"filter", names_filter},
    {"test", names_test},
}};

}  // namespace

PredicateFunction find_predicate(std::string_view name) {
  for (const auto& [known, function] : kPredicates) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace heddle::chat
