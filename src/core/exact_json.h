// SPDX-License-Identifier: Apache-2.0
// Parses and writes JSON text without changing its numbers. The JSON library rounds integers beyond
// 64 bits to a double, and rejects numbers beyond a double (1e400). Here both become wide numbers:
// values of the library's type `binary` that contain the spelling of the number. All other values
// are the library's own: 1.0 and 1 differ, -0 is 0, 0.1000 is 0.1.
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

namespace heddle {

// A wide number with this spelling, which must be a JSON number.
[[nodiscard]] nlohmann::ordered_json wide_number(std::string_view spelling);

// The spelling of a wide number, a view of `value`; nothing for other values.
[[nodiscard]] std::optional<std::string_view> wide_number_spelling(
    const nlohmann::ordered_json& value);

// Whether this spelling of a JSON number is that of an integer.
[[nodiscard]] bool is_integer_spelling(std::string_view number);

// Parses one JSON value. Objects keep the order of their keys; if a key occurs twice, the last
// value counts, at the position of the first. With `fields` the document must be an object, and
// wide numbers are kept only in these members; elsewhere numbers are read as the library does.
//
// Error: kInvalidArgument with the library's message, or for more than kMaxJsonDepth levels
// (core/json_syntax.h), because values are copied, compared and written recursively. Cost:
// O(bytes), and O(n log n) comparisons for an object with n keys.
[[nodiscard]] Result<nlohmann::ordered_json> parse_exact_json(
    std::string_view text, std::span<const std::string_view> fields = {});

// The object that a text describes; an empty object if the text is not one.
[[nodiscard]] nlohmann::ordered_json object_of_json(std::string_view text);

// Writes the value in one line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_exact_json(const nlohmann::ordered_json& value);

}  // namespace heddle
