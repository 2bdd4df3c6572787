// SPDX-License-Identifier: Apache-2.0
// The two ways to fill values into a text: "%s of %d" % (a, b) and "{} of {name}".format(a,
// name=b). Only as much of them as needs no look into the values: no attribute or index behind a
// field's name.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "chat/arguments.h"
#include "chat/value.h"

namespace heddle::chat {

// Conversions s, r, d, i, x, X, o, f, e, g and %%, with flags, width and precision.
// Error: kInvalidArgument for another conversion, a missing, surplus or unsuitable value.
Result<Value> format_percent(Budget* budget, std::string_view format, const Value& values);

// Fields {}, {0} and {name}, with {{ and }}. Error: kInvalidArgument for anything else inside a
// field.
Result<Value> format_braces(Budget* budget, std::string_view format, const Arguments& arguments);

}  // namespace heddle::chat
