// SPDX-License-Identifier: Apache-2.0
// The JSON that Python's json module reads, as standard JSON (json_reader.h).
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle {

// Deeper nesting is refused: Python's own limit is near it.
inline constexpr size_t kMaxJsonDepth = 1000;

// The key by which transformers writes NaN and the infinities into standard JSON:
// {"__float__": "Infinity"}.
inline constexpr std::string_view kSpecialFloatKey = "__float__";

// Rewrites a text so that every JSON parser reads the same values in it:
//   - NaN, Infinity, -Infinity and numbers beyond a double become {"__float__": "Infinity"} etc.;
//   - integers beyond 64 bits become floats;
//   - the escape of half a surrogate pair becomes U+FFFD;
//   - a byte-order mark is dropped.
// Everything else stays as it is, keys given twice included.
//
// Error: kDataLoss with line, column and what was expected there. A text that is no JSON at all is
// named: empty, UTF-16, or a kind of core/file_kind.h. Cost: one pass, about 200 MB/s.
[[nodiscard]] Result<std::string> strict_json(std::string_view text);

}  // namespace heddle
