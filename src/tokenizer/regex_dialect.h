// SPDX-License-Identifier: Apache-2.0
// Respells an Oniguruma pattern (Ruby syntax, what tokenizer.json uses) so that PCRE2 reads it the
// same.
//
//   \s       Unicode White_Space (PCRE2 would add U+180E)        \h  a hexadecimal digit
//   \w       letters, marks, decimal digits, connectors (PCRE2 10.42 knows no marks or connectors)
//   [a[bc]]  a set inside a set is a union
//   x{,3}    from none to three
//   x{1,3}+  the repetition of a repetition (PCRE2: possessive)
//   $        also before every newline: compile with PCRE2_MULTILINE
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle::tokenizer {

// Error: kUnimplemented for set intersections (&&) and negated sets inside sets.
Result<std::string> respell_for_pcre2(std::string_view pattern);

}  // namespace heddle::tokenizer
