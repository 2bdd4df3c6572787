// SPDX-License-Identifier: Apache-2.0
// Bodies of the type multipart/form-data (RFC 7578), as clients upload files.
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/http/api_error.h"

namespace heddle::server {

inline constexpr size_t kMaxFormParts = 32;
inline constexpr size_t kMaxFormPartHead = 8 << 10;  // limit for the headers of one part, in bytes
inline constexpr size_t kMaxBoundaryBytes = 70;      // limit for the boundary, in bytes (RFC 2046)

struct FormPart {
  std::string name;
  std::string file_name;     // name of the uploaded file; "" if the part has none
  std::string_view content;  // content of the part, a view of the body
};

// Splits a body into its parts. Cost: O(body). Errors say what is malformed.
std::variant<std::vector<FormPart>, ApiError> parse_multipart_form(std::string_view content_type,
                                                                   std::string_view body);

}  // namespace heddle::server
