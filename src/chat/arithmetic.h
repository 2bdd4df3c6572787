// SPDX-License-Identifier: Apache-2.0
// + - * / // % ** between any two values, as Python: numbers, but also texts and lists joined,
// repeated and formatted.
#pragma once

#include <heddle/status.h>

#include "chat/numbers.h"
#include "chat/value.h"

namespace heddle::chat {

// Error: kInvalidArgument for operands the operator does not join, overflow, or the budget.
Result<Value> arithmetic(Budget* budget, Arithmetic operation, const Value& a, const Value& b);

// -value and +value.
Result<Value> negated(const Value& value);
Result<Value> with_plus(const Value& value);

}  // namespace heddle::chat
