// SPDX-License-Identifier: Apache-2.0
// The methods of strings, lists and dicts that templates may call: Python's, less those that change
// a list or dict or lead out of the data.
#pragma once

#include <cstdint>
#include <string_view>

#include <heddle/status.h>

#include "chat/arguments.h"
#include "chat/value.h"

namespace heddle::chat {

enum class MethodKind : uint8_t { kNone, kCallable, kForbidden };

[[nodiscard]] MethodKind find_method(const Value& self, std::string_view name);

// Error: kInvalidArgument for arguments the method does not take.
Result<Value> call_method(Budget* budget, const BoundMethod& method, const Arguments& arguments);

using MethodFunction = Result<Value> (*)(Budget* budget, const Value& self,
                                         const Arguments& arguments);

// By name, or nullptr. `self` must be a string.
[[nodiscard]] MethodFunction find_string_method(std::string_view name);

}  // namespace heddle::chat
