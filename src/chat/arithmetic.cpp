// SPDX-License-Identifier: Apache-2.0
#include "chat/arithmetic.h"

#include <fmt/format.h>

#include "chat/string_format.h"
#include "chat/text_writer.h"

namespace heddle::chat {

namespace {

bool is_list_or_tuple(const Value& value) {
  return value.is(Kind::kSequence) && value.as_sequence()->flavor <= Flavor::kTuple;
}

Result<Value> joined(Budget* budget, const Value& a, const Value& b) {
  if (a.is_string()) {
    if (!b.is_string()) {
      return invalid_argument(
          fmt::format("can only concatenate str (not \"{}\") to str", b.type_name()));
    }
    TextWriter out(budget);
    HEDDLE_RETURN_IF_ERROR(out.append(a.as_string()));
    HEDDLE_RETURN_IF_ERROR(out.append(b.as_string()));
    return out.finish();
  }
  const Sequence& left = *a.as_sequence();
  if (!is_list_or_tuple(b) || b.as_sequence()->flavor != left.flavor) {
    return invalid_argument(fmt::format("can only concatenate {} (not \"{}\") to {}", a.type_name(),
                                        b.type_name(), a.type_name()));
  }
  const Sequence& right = *b.as_sequence();
  HEDDLE_RETURN_IF_ERROR(budget->fits((left.items.size() + right.items.size()) * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(left.items.size() + right.items.size());
  items.insert(items.end(), left.items.begin(), left.items.end());
  items.insert(items.end(), right.items.begin(), right.items.end());
  return make_sequence(budget, left.flavor, std::move(items));
}

Result<Value> repeated(Budget* budget, const Value& value, int64_t count) {
  if (value.is_string()) {
    TextWriter out(budget);
    HEDDLE_RETURN_IF_ERROR(out.repeat(value.as_string(), count));
    return out.finish();
  }
  const Sequence& sequence = *value.as_sequence();
  const size_t copies = count > 0 ? static_cast<size_t>(count) : 0;
  size_t bytes = 0;
  if (__builtin_mul_overflow(sequence.items.size() * sizeof(Value), copies, &bytes)) {
    bytes = static_cast<size_t>(-1);
  }
  HEDDLE_RETURN_IF_ERROR(budget->fits(bytes));
  std::vector<Value> items;
  items.reserve(bytes / sizeof(Value));
  for (size_t i = 0; i < copies && !sequence.items.empty(); ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_sequence(budget, sequence.flavor, std::move(items));
}

bool is_repeatable(const Value& value) { return value.is_string() || is_list_or_tuple(value); }

}  // namespace

Result<Value> arithmetic(Budget* budget, Arithmetic operation, const Value& a, const Value& b) {
  HEDDLE_RETURN_IF_ERROR(budget->step());
  if (a.is_number() && b.is_number()) return number_arithmetic(operation, a, b);
  if (a.is_undefined()) return invalid_argument(a.undefined_reason());
  if (operation == Arithmetic::kModulo && a.is_string()) {
    return format_percent(budget, a.as_string(), b);
  }
  if (b.is_undefined()) return invalid_argument(b.undefined_reason());
  if (operation == Arithmetic::kAdd && (a.is_string() || is_list_or_tuple(a)))
    return joined(budget, a, b);
  if (operation == Arithmetic::kMultiply) {
    if (is_repeatable(a) && b.is_integral()) return repeated(budget, a, b.as_integer());
    if (is_repeatable(b) && a.is_integral()) return repeated(budget, b, a.as_integer());
  }
  return invalid_argument(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                                      operator_text(operation), a.type_name(), b.type_name()));
}

Result<Value> negated(const Value& value) {
  if (value.is_number()) return negated_number(value);
  if (value.is_undefined()) return invalid_argument(value.undefined_reason());
  return invalid_argument(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
}

Result<Value> with_plus(const Value& value) {
  if (value.is(Kind::kBool)) return Value::integer(value.as_integer());
  if (value.is_number()) return value;
  if (value.is_undefined()) return invalid_argument(value.undefined_reason());
  return invalid_argument(fmt::format("bad operand type for unary +: '{}'", value.type_name()));
}

}  // namespace heddle::chat
