// SPDX-License-Identifier: Apache-2.0
// The tests of the template language: value is name(arguments).
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "chat/arguments.h"
#include "chat/value.h"

namespace heddle::chat {

// Error: kInvalidArgument for a subject or arguments the test does not take, or the budget.
using PredicateFunction = Result<bool> (*)(Budget* budget, const Value& subject,
                                           const Arguments& arguments);

// By name, or nullptr.
[[nodiscard]] PredicateFunction find_predicate(std::string_view name);

}  // namespace heddle::chat
