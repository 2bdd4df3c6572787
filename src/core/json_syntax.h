// SPDX-License-Identifier: Apache-2.0
// Converts the JSON that Python's json module accepts to standard JSON (json_reader.h).
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle {

// Texts with deeper nesting are rejected; Python's own limit is similar.
inline constexpr size_t kMaxJsonDepth = 1000;

// The key by which transformers writes NaN and the infinities into standard JSON:
// {"__float__": "Infinity"}.
inline constexpr std::string_view kSpecialFloatKey = "__float__";

// Rewrites a text so that every JSON parser reads the same values from it:
//   - NaN, Infinity, -Infinity and numbers beyond a double become {"__float__": "Infinity"} etc.;
//   - integers beyond 64 bits become floats;
//   - the escape of half a surrogate pair becomes U+FFFD;
//   - a byte-order mark is dropped.
// Everything else is unchanged, including keys given twice.
//
// Error: kDataLoss with line, column and the expected syntax. If a text is not JSON at all the
// error names its kind: empty, UTF-16, or a kind of core/file_kind.h. Cost: one pass, about 200
// MB/s.
[[nodiscard]] Result<std::string> strict_json(std::string_view text);

}  // namespace heddle
