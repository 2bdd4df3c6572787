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

#include "server/http/api_error.h"
#include "server/http/http_message.h"

namespace heddle::server {

inline constexpr int kMaxJsonDepth = 64;
// Objects keep the order of their keys and are searched from the front: this bounds that search.
inline constexpr int kMaxJsonObjectKeys = 2048;
// A text may grow, as values, to so many times its size and so many bytes beyond. A number in
// a list takes 32 bytes while the list grows, one that may be kept by its digits 132 and these, an
// empty string 80, an object's entry 96, of as few as two, three and six bytes of text. Of token
// ids with five digits and a comma, a body of 64 MiB passes, the server's own limit: 14 bytes of
// each are beyond the growth. Of the densest text that a tool's schema is made of, some megabytes.
inline constexpr int64_t kJsonGrowth = 3;
inline constexpr int64_t kFreeJsonBytes = int64_t{150} << 20;

enum class WideNumbers : uint8_t {
  kInExactFields,  // those of a request that have histories or schemas
  kEverywhere,
};

// Parses a request body, which must be one JSON object in UTF-8. Key order is kept: templates show
// it. Cost: O(bytes). Memory: the limits above and, while it is parsed, three times its longest
// string.
// `what` leads the error's sentence. `wide`: where numbers keep all their digits.
std::optional<ApiError> parse_json_object(std::string_view text, nlohmann::ordered_json& object,
                                          std::string_view what = "The request body",
                                          WideNumbers wide = WideNumbers::kInExactFields);

// The value of this name in an object; null where there is none, or where it is JSON's null.
[[nodiscard]] const nlohmann::ordered_json* find_value(const nlohmann::ordered_json& object,
                                                       std::string_view name);

// One line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value);

// 200 with this body.
[[nodiscard]] HttpResponse json_response(const nlohmann::ordered_json& body);

// "data: {...}\n\n"
[[nodiscard]] std::string sse_event(const nlohmann::ordered_json& value);

// Appends the same with a line "event: TYPE" before it, from the event's field `type`.
void append_typed_event(const nlohmann::ordered_json& event, std::string& out);

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace heddle::server
