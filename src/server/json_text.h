// SPDX-License-Identifier: Apache-2.0
// JSON text in and out, with the limits that keep a hostile body cheap.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "server/api_error.h"

namespace heddle::server {

inline constexpr int kMaxJsonDepth = 64;
// Objects keep the order of their keys and are searched from the front: this bounds that search.
inline constexpr int kMaxJsonObjectKeys = 2048;
// A value takes 16 bytes of memory and as few as two of text: this bounds what a body grows to. The
// prompts of the largest batches have fewer tokens.
inline constexpr int64_t kMaxJsonValues = int64_t{1} << 23;

// Parses a request body, which must be one JSON object in UTF-8. Key order is kept: templates show
// it. Cost: O(bytes).
// `what` leads the error's sentence.
std::optional<ApiError> parse_json_object(std::string_view text, nlohmann::ordered_json& object,
                                          std::string_view what = "The request body");

// One line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value);

// "data: {...}\n\n"
[[nodiscard]] std::string sse_event(const nlohmann::ordered_json& value);

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace heddle::server
