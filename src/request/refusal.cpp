// SPDX-License-Identifier: Apache-2.0
#include "request/refusal.h"

#include <fmt/format.h>

namespace heddle::request {

Status refuse(std::string_view field, std::string_view reason) {
  return invalid_argument(fmt::format("{}: {}", field, reason));
}

Refusal refusal_of(const Status& status) {
  const std::string_view message = status.message();
  if (status.code() != StatusCode::kInvalidArgument) return {.field = {}, .reason = message};
  for (const std::string_view field : {kPriorityField, kAnswersField}) {
    if (message.starts_with(field) && message.substr(field.size()).starts_with(": ")) {
      return {.field = field, .reason = message.substr(field.size() + 2)};
    }
  }
  return {.field = {}, .reason = message};
}

}  // namespace heddle::request
