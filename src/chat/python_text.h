// SPDX-License-Identifier: Apache-2.0
// Python's str() and repr() of values, as a template's output has them: True, None, 1.0, ['a',
// {'b': 1}], (1,).
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// Writes str(value). Error: kInvalidArgument if the writer's budget is exceeded.
Status write_str(TextWriter& out, const Value& value);
Status write_repr(TextWriter& out, const Value& value);

// str(value) as a string value; a string is returned as it is.
Result<Value> to_string_value(Budget* budget, const Value& value);

// Python's repr() of a string, for messages: 'it' or "it's".
[[nodiscard]] std::string repr_of(std::string_view text);

}  // namespace heddle::chat
