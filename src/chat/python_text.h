// SPDX-License-Identifier: Apache-2.0
// str() and repr() of values, as Python prints them inside a template's output: True, None, 1.0,
// ['a', {'b': 1}], (1,).
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// Error: kInvalidArgument when the writer's budget is used up.
Status write_str(TextWriter& out, const Value& value);
Status write_repr(TextWriter& out, const Value& value);

// str(value) as a string value; a string is returned as it is.
Result<Value> to_string_value(Budget* budget, const Value& value);

// repr of a string, for messages: 'it' or "it's".
[[nodiscard]] std::string repr_of(std::string_view text);

}  // namespace heddle::chat
