// SPDX-License-Identifier: Apache-2.0
// Format strings: "%s of %d" % (a, b), "{} of {name}".format(a, name=b) and strftime's "%d %B". A
// field refers to a whole value: attributes and indices after its name are not supported.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include <heddle/status.h>

#include "chat/callables.h"
#include "chat/value.h"

namespace heddle::chat {

// Conversions s, r, d, i, x, X, o, f, e, g and %%, with flags, width and precision.
// Error: kInvalidArgument for another conversion, a missing, surplus or unsuitable value.
Result<Value> format_percent(Budget* budget, std::string_view format, const Value& values);

// Fields {}, {0} and {name}, with {{ and }}. Error: kInvalidArgument for anything else inside a
// field.
Result<Value> format_braces(Budget* budget, std::string_view format, const Arguments& arguments);

// strftime with English names, whatever the process's locale. Conversions: a A b B h C c d D e f F
// H I j k l m M n p P r R S t T u w x X y Y %, and %Z and %z, which are empty for a time without a
// zone. A '-' after the percent sign removes the padding: %-d. Error: kInvalidArgument naming an
// unknown conversion, or a field of `time` out of range.
Result<std::string> format_time(std::string_view format, const std::tm& time);

}  // namespace heddle::chat
