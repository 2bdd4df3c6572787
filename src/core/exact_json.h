// SPDX-License-Identifier: Apache-2.0
// JSON text in and out of the JSON library without a change of its numbers. The library has no type
// for an integer beyond 64 bits, which it rounds to a double, and refuses a number beyond a double
// (1e400). Both are wide numbers here: a value of the library's type `binary` that holds the
// number's spelling. All other values are the library's own: 1.0 and 1 differ, -0 is 0, 0.1000
// is 0.1.
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

// `spelling` is a JSON number.
[[nodiscard]] nlohmann::ordered_json wide_number(std::string_view spelling);

// The spelling of a wide number; nothing of any other value. A view of `value`.
[[nodiscard]] std::optional<std::string_view> wide_number_spelling(
    const nlohmann::ordered_json& value);

// Whether the spelling of a JSON number is an integer's.
[[nodiscard]] bool is_integer_spelling(std::string_view number);

// Parses one JSON value. Objects keep the order of their keys; of a key given twice the last value
// counts, at the first one's position. With `fields`, wide numbers are kept in these members of the
// document, which is an object, and elsewhere read as the library reads them.
//
// Error: kInvalidArgument with the library's words, or for more than kMaxJsonDepth levels
// (core/json_syntax.h): values are copied, compared and written by recursion. Cost: O(bytes), and
// O(n log n) comparisons for an object of n keys.
[[nodiscard]] Result<nlohmann::ordered_json> parse_exact_json(
    std::string_view text, std::span<const std::string_view> fields = {});

// The object that a text is; an empty one where it is none.
[[nodiscard]] nlohmann::ordered_json object_of_json(std::string_view text);

// One line; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_exact_json(const nlohmann::ordered_json& value);

}  // namespace heddle
