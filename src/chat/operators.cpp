// SPDX-License-Identifier: Apache-2.0
#include "chat/operators.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "chat/numbers.h"
#include "chat/string_format.h"
#include "chat/text_operations.h"
#include "chat/value.h"

namespace heddle::chat {

namespace {

Result<bool> equal_sequences(Budget* budget, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.flavor != b.flavor || a.flavor == Flavor::kGenerator || a.flavor == Flavor::kValues)
    return false;
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool same, equal(budget, a.items[i], b.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Budget* budget, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    HEDDLE_RETURN_IF_ERROR(budget->step());
    const Value* other = b.find(key);
    if (other == nullptr) return false;
    HEDDLE_ASSIGN_OR_RETURN(const bool same, equal(budget, value, *other));
    if (!same) return false;
  }
  return true;
}

Status not_ordered(std::string_view symbol, const Value& a, const Value& b) {
  if (a.is_undefined()) return invalid_argument(a.undefined_reason());
  if (b.is_undefined()) return invalid_argument(b.undefined_reason());
  return invalid_argument(fmt::format("'{}' not supported between instances of '{}' and '{}'",
                                      symbol, a.type_name(), b.type_name()));
}

// -1, 0 or 1; 2 if one is NaN, for which <, <=, > and >= are all false.
Result<int> order(Budget* budget, std::string_view symbol, const Value& a, const Value& b) {
  HEDDLE_RETURN_IF_ERROR(budget->step());
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    HEDDLE_RETURN_IF_ERROR(budget->touch(std::min(a.as_string().size(), b.as_string().size())));
    const int result = a.as_string().compare(b.as_string());
    return result < 0 ? -1 : result > 0 ? 1 : 0;
  }
  const bool sequences = a.is(Kind::kSequence) && b.is(Kind::kSequence);
  if (!sequences || a.as_sequence()->flavor != b.as_sequence()->flavor ||
      (a.as_sequence()->flavor != Flavor::kList && a.as_sequence()->flavor != Flavor::kTuple)) {
    return not_ordered(symbol, a, b);
  }
  const std::vector<Value>& left = a.as_sequence()->items;
  const std::vector<Value>& right = b.as_sequence()->items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool same, equal(budget, left[i], right[i]));
    if (!same) return order(budget, symbol, left[i], right[i]);
  }
  return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
}

}  // namespace

Result<bool> equal(Budget* budget, const Value& a, const Value& b) {
  HEDDLE_RETURN_IF_ERROR(budget->step());
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kBigInt:
      return compare_numbers(a, b) == 0;
    case Kind::kString:
      if (a.as_string().size() != b.as_string().size()) return false;
      HEDDLE_RETURN_IF_ERROR(budget->touch(a.as_string().size()));
      return a.as_string() == b.as_string();
    case Kind::kSequence:
      return equal_sequences(budget, *a.as_sequence(), *b.as_sequence());
    case Kind::kDict:
      return equal_dicts(budget, a.as_dict(), b.as_dict());
    case Kind::kNamespace:
      return a.as_namespace() == b.as_namespace();
    case Kind::kLoop:
      return a.as_loop() == b.as_loop();
    case Kind::kMacro:
      return a.as_macro() == b.as_macro();
    case Kind::kMethod:
      if (a.as_method().name != b.as_method().name) return false;
      return equal(budget, a.as_method().self, b.as_method().self);
    case Kind::kBuiltin:
      return a.as_builtin() == b.as_builtin();
  }
  return false;
}

Result<bool> less(Budget* budget, const Value& a, const Value& b) {
  HEDDLE_ASSIGN_OR_RETURN(const int result, order(budget, "<", a, b));
  return result == -1;
}

Result<bool> contains(Budget* budget, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;  // undefined counts as an empty iterable
    case Kind::kString:
      if (!item.is_string()) {
        return invalid_argument(
            fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
      }
      HEDDLE_RETURN_IF_ERROR(budget->touch(container.as_string().size()));
      return find_text(container.as_string(), item.as_string(), 0) != std::string_view::npos;
    case Kind::kDict:
      HEDDLE_RETURN_IF_ERROR(budget->step());
      if (item.is(Kind::kDict) ||
          (item.is(Kind::kSequence) && item.as_sequence()->flavor == Flavor::kList)) {
        return invalid_argument(fmt::format("a '{}' cannot be a key of a dict", item.type_name()));
      }
      return container.as_dict().find(item) != nullptr;
    case Kind::kSequence:
      if (container.as_sequence()->flavor == Flavor::kGenerator &&
          container.as_sequence()->consumed) {
        return false;
      }
      for (const Value& candidate : container.as_sequence()->items) {
        HEDDLE_ASSIGN_OR_RETURN(const bool same, equal(budget, candidate, item));
        if (same) return true;
      }
      return false;
    default:
      return invalid_argument(
          fmt::format("argument of type '{}' is not iterable", container.type_name()));
  }
}

Result<bool> compare(Budget* budget, Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(budget, a, b);
    case Comparison::kNotEqual: {
      HEDDLE_ASSIGN_OR_RETURN(const bool same, equal(budget, a, b));
      return !same;
    }
    case Comparison::kLess:
      return less(budget, a, b);
    case Comparison::kLessOrEqual: {
      HEDDLE_ASSIGN_OR_RETURN(const int result, order(budget, "<=", a, b));
      return result == -1 || result == 0;
    }
    case Comparison::kGreater: {
      HEDDLE_ASSIGN_OR_RETURN(const int result, order(budget, ">", a, b));
      return result == 1;
    }
    case Comparison::kGreaterOrEqual: {
      HEDDLE_ASSIGN_OR_RETURN(const int result, order(budget, ">=", a, b));
      return result == 1 || result == 0;
    }
    case Comparison::kIn:
      return contains(budget, b, a);
    case Comparison::kNotIn: {
      HEDDLE_ASSIGN_OR_RETURN(const bool inside, contains(budget, b, a));
      return !inside;
    }
  }
  return internal_error("unknown comparison");
}

Result<std::vector<size_t>> sorted_order(Budget* budget, const std::vector<Value>& keys,
                                         bool descending) {
  // An own merge sort, because a comparison can fail, and NaN breaks the strict weak order that
  // std::sort needs.
  std::vector<size_t> from(keys.size());
  std::iota(from.begin(), from.end(), size_t{0});
  std::vector<size_t> to(keys.size());
  for (size_t width = 1; width < keys.size(); width *= 2) {
    for (size_t begin = 0; begin < keys.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keys.size());
      const size_t end = std::min(begin + 2 * width, keys.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Value& a = keys[from[left]];
          const Value& b = keys[from[right]];
          HEDDLE_ASSIGN_OR_RETURN(take_right, descending ? less(budget, a, b) : less(budget, b, a));
        }
        to[out] = take_right ? from[right++] : from[left++];
      }
    }
    std::swap(from, to);
  }
  return from;
}

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
