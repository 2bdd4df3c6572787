// SPDX-License-Identifier: Apache-2.0
// The operators of the template language between any two values, as Python has them: ==, <, `in`
// and the other comparisons, and + - * / // % **, which also join, repeat and format texts and
// lists.
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

// Deep equality; values of different kinds are unequal (1 == 1.0 == True).
// Error: kInvalidArgument when the budget is used up.
Result<bool> equal(Budget* budget, const Value& a, const Value& b);

// a < b for two numbers, two strings, two lists or two tuples. Error: other operands, or the
// budget.
Result<bool> less(Budget* budget, const Value& a, const Value& b);

// `item in container`. Error: the container is not one.
Result<bool> contains(Budget* budget, const Value& container, const Value& item);

Result<bool> compare(Budget* budget, Comparison comparison, const Value& a, const Value& b);

// A stable order of 0 .. keys.size()-1 by their keys, ascending, or descending with equal keys in
// their given order. Error: two keys that cannot be compared.
Result<std::vector<size_t>> sorted_order(Budget* budget, const std::vector<Value>& keys,
                                         bool descending);

// Error: kInvalidArgument for operands the operator does not join, overflow, or the budget.
Result<Value> arithmetic(Budget* budget, Arithmetic operation, const Value& a, const Value& b);

// -value and +value.
Result<Value> negated(const Value& value);
Result<Value> with_plus(const Value& value);

}  // namespace heddle::chat
