// SPDX-License-Identifier: Apache-2.0
// Adds to an error of a wrong file what its reader can do about it, where the message does not say
// it: "<thing> is <value>, outside 1 to 64" becomes "...; download the file again". A message that
// asks for something says it after a semicolon or has the word download; it stays as it is.
//
// Call it before Status::with_context() puts a path in front, which may have either.
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
