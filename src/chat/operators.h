// SPDX-License-Identifier: Apache-2.0
// The operators of the template language, for any two values, as in Python: ==, <, `in` and the
// other comparisons, and + - * / // % **, which also join, repeat and format texts and lists.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "chat/limits.h"
#include "chat/numbers.h"
#include "chat/value.h"

namespace heddle::chat {

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

// Deep equality. Values of different types are unequal, except numbers and booleans (1 == 1.0 ==
// True).
// Error: kInvalidArgument if the budget is exceeded.
Result<bool> equal(Budget* budget, const Value& a, const Value& b);

// a < b for two numbers, two strings, two lists or two tuples. Error: other operands, or an
// exceeded budget.
Result<bool> less(Budget* budget, const Value& a, const Value& b);

// `item in container`. Error: `container` cannot contain items.
Result<bool> contains(Budget* budget, const Value& container, const Value& item);

Result<bool> compare(Budget* budget, Comparison comparison, const Value& a, const Value& b);

// A stable order of the indices 0 .. keys.size()-1 by their keys, ascending or descending; equal
// keys stay in the given order. Error: two keys cannot be compared.
Result<std::vector<size_t>> sorted_order(Budget* budget, const std::vector<Value>& keys,
                                         bool descending);

// Error: kInvalidArgument for operands that the operator does not accept, overflow, or an exceeded
// budget.
Result<Value> arithmetic(Budget* budget, Arithmetic operation, const Value& a, const Value& b);

// Arithmetic negation; the next function is the unary plus.
Result<Value> negated(const Value& value);
Result<Value> with_plus(const Value& value);

}  // namespace heddle::chat
