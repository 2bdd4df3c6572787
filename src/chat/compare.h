// SPDX-License-Identifier: Apache-2.0
// ==, <, `in` and the other ways to relate two values, as Python relates them.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "chat/limits.h"
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

}  // namespace heddle::chat
