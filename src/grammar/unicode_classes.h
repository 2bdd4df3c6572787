// SPDX-License-Identifier: Apache-2.0
// Classes of characters by their Unicode properties, as \p{...} in a regular expression names them.
//
// Threading: thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/code_points.h"

namespace heddle::grammar {

// The characters of a class. `name`: a general category by its short or long name (L, Lu, Letter,
// Uppercase_Letter), a script (Greek, Script=Greek, sc=Greek) or a binary property (Alphabetic,
// Emoji), if PCRE2 knows it. Nullopt: there is no class of that name. Cost: some 20 ms the first
// time, then a look-up.
[[nodiscard]] std::optional<CodePointSet> unicode_class(std::string_view name);

}  // namespace heddle::grammar
