// SPDX-License-Identifier: Apache-2.0
// Classes of characters by their properties in Unicode, as \p{...} of a regular expression names
// them.
//
// Threading: thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/code_points.h"

namespace heddle::grammar {

// General categories by their short and long names (L, Lu, Letter, Uppercase_Letter), scripts
// (Greek, Script=Greek, sc=Greek) and binary properties (Alphabetic, Emoji), as far as PCRE2 knows
// them. Nothing: there is none of that name. Cost: the first time some 20 ms, then a look-up.
[[nodiscard]] std::optional<CodePointSet> unicode_class(std::string_view name);

}  // namespace heddle::grammar
