// SPDX-License-Identifier: Apache-2.0
// strftime with English names, whatever the process's locale, for templates that print today's
// date.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle::chat {

// Conversions: a A b B h c C d D e f F H I j k l m M n p P r R S t T u w x X y Y %, and %Z and %z,
// which are empty for a time without a zone. A '-' behind the percent sign drops padding: %-d.
// Error: kInvalidArgument naming an unknown conversion, or a field of `time` out of range.
Result<std::string> format_time(std::string_view format, const std::tm& time);

}  // namespace heddle::chat
