// SPDX-License-Identifier: Apache-2.0
// Reads and writes JSON text, with limits that keep a hostile body cheap.
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
// Most keys of an object. Objects keep the order of their keys and are searched linearly.
inline constexpr int kMaxJsonObjectKeys = 2048;
// The values of a text may use kJsonGrowth times its size plus kFreeJsonBytes of memory. While a
// list grows, a number in it uses 32 bytes (132 bytes and its digits if it may be kept digit by
// digit), an empty string 80 and an entry of an object 96; their text may have as few as two, three
// and six bytes. For token ids of five digits and a comma, a body of 64 MiB, the server's own
// limit, is accepted: 14 bytes of each id exceed the growth. For the densest text of tool schemas
// some megabytes are.
// megabytes are.
inline constexpr int64_t kJsonGrowth = 3;
inline constexpr int64_t kFreeJsonBytes = int64_t{150} << 20;

enum class WideNumbers : uint8_t {
  kInExactFields,  // in the fields of a request that have histories or schemas
  kEverywhere,
};

// Parses a request body, which must be one JSON object in UTF-8. Key order is kept, because
// templates show it. `what` names the text in errors. `wide`: where numbers keep all their digits.
// Cost: O(bytes). Memory: the limits above and, while parsing, three times the longest string.
std::optional<ApiError> parse_json_object(std::string_view text, nlohmann::ordered_json& object,
                                          std::string_view what = "The request body",
                                          WideNumbers wide = WideNumbers::kInExactFields);

// The value of this name in an object; null if it is missing or JSON's null.
[[nodiscard]] const nlohmann::ordered_json* find_value(const nlohmann::ordered_json& object,
                                                       std::string_view name);

// Writes a value as one line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value);

// A response with status 200 and this body.
[[nodiscard]] HttpResponse json_response(const nlohmann::ordered_json& body);

// The value as a server-sent event: "data: {...}\n\n".
[[nodiscard]] std::string sse_event(const nlohmann::ordered_json& value);

// Appends a server-sent event with a line "event: TYPE", where TYPE is the event's field `type`.
void append_typed_event(const nlohmann::ordered_json& event, std::string& out);

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace heddle::server
