// SPDX-License-Identifier: Apache-2.0
// Refusal: an error that only the engine can find, because it depends on how the engine was
// started. Such a status is kInvalidArgument, and its message begins with the field at fault and a
// colon: "priority: the request has a priority, but priority scheduling is off". Written and read
// here, so that the server can name the field however the reason is worded.
//
// Threading: free functions without state.
#pragma once

#include <string_view>

#include <heddle/status.h>

namespace heddle::request {

inline constexpr std::string_view kPriorityField = "priority";
inline constexpr std::string_view kAnswersField = "n";  // number of answers per call

struct Refusal {
  std::string_view field;   // one of the above; empty: the status is not made by refuse()
  std::string_view reason;  // the message without the field
};

[[nodiscard]] Status refuse(std::string_view field, std::string_view reason);

// Views into `status`.
[[nodiscard]] Refusal refusal_of(const Status& status);

}  // namespace heddle::request
