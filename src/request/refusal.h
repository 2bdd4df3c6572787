// SPDX-License-Identifier: Apache-2.0
// Refusal: an error that only the engine can find, because it depends on how the engine was
// started. Its status is kInvalidArgument, and the message begins with the name of the field at
// fault and a colon: "priority: the request has a priority, but priority scheduling is off". This
// file writes and parses such messages, so that the server can name the field however the reason is
// worded.
//
// Threading: free functions without state.
#pragma once

#include <string_view>

#include <heddle/status.h>

namespace heddle::request {

inline constexpr std::string_view kPriorityField = "priority";
inline constexpr std::string_view kAnswersField = "n";  // the number of answers per call

struct Refusal {
  std::string_view field;   // one of the field names above; empty: refuse() did not make the status
  std::string_view reason;  // the message without the name of the field
};

[[nodiscard]] Status refuse(std::string_view field, std::string_view reason);

// Splits a status that refuse() made. The result refers to the text of `status`.
[[nodiscard]] Refusal refusal_of(const Status& status);

}  // namespace heddle::request
