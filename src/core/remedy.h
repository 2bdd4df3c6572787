// SPDX-License-Identifier: Apache-2.0
// with_remedy() adds to the error message about a bad file what the user can do about it:
// "<thing> is <value>, outside 1 to 64" becomes "...; download the file again". A message that has
// "; " or the word "download" names a remedy already and is not changed.
//
// Call it before Status::with_context() adds a path, which may contain either of them.
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle {

inline constexpr std::string_view kDownloadAgain = "download the file again";

[[nodiscard]] inline Status with_remedy(const Status& status, std::string_view remedy) {
  if (status.ok()) return status;
  const std::string& message = status.message();
  if (message.find("; ") != std::string::npos || message.find("download") != std::string::npos) {
    return status;
  }
  // Another download does not help if Heddle lacks what the file needs.
  const bool lacks = status.code() == StatusCode::kUnimplemented;
  return {status.code(),
          message + "; " + std::string(lacks ? "take a checkpoint without it" : remedy)};
}

}  // namespace heddle
