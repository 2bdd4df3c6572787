// SPDX-License-Identifier: Apache-2.0
// Regex: the patterns of tokenizer.json, compiled by PCRE2, to machine code if possible.
//
// The patterns are written for the Oniguruma engine in its Ruby syntax; respell_for_pcre2() changes
// the parts that PCRE2 reads differently.
//
// Threading: a Regex is immutable and thread-safe; a RegexScratch belongs to one call at a time.
// Subjects must be valid UTF-8, which is not checked (a check for each match would be quadratic).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle::tokenizer {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// The working memory of matches. The first failure is stored in `status`: a failed search returns
// the same as one without a match, so check `status` after the last search.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

  Status status;

 private:
  friend class Regex;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class Regex {
 public:
  // Compiles a pattern. Error: kInvalidArgument with the position and PCRE2's message;
  // kUnimplemented for Oniguruma syntax that PCRE2 cannot express.
  static Result<Regex> compile(std::string_view pattern);

  // Compiles a pattern that matches exactly `text`.
  static Result<Regex> compile_literal(std::string_view text);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Finds the first non-empty match at or after `start`.
  bool find(std::string_view subject, size_t start, RegexScratch& scratch, Span& match) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static Result<Regex> compile_pcre2(std::string_view pattern, uint32_t extra_options);
  int match_at(std::string_view subject, size_t start, RegexScratch& scratch) const;

  std::unique_ptr<Code> code_;
};

// Rewrites an Oniguruma pattern (Ruby syntax, which tokenizer.json uses) so that PCRE2 interprets
// it in the same way.
//
//   \s       Unicode White_Space (PCRE2 would add U+180E)        \h  a hexadecimal digit
//   \w       letters, marks, decimal digits, connectors (PCRE2 10.42 knows no marks or connectors)
//   [a[bc]]  a set inside a set is a union
//   [a&&[^b]]  an intersection: a lookahead before the set, or one set where the members are
//            categories of letters and the like
//   \p{Han}  the characters of the script (PCRE2: those that are used with it, too)
//   x{,3}    from none to three
//   x{1,3}+  the repetition of a repetition (PCRE2: possessive)
//   $        also before every newline: compile with PCRE2_MULTILINE
//
// Error: kUnimplemented for negated sets inside sets, and for intersections that are negated or
// inside another set.
Result<std::string> respell_for_pcre2(std::string_view pattern);

}  // namespace heddle::tokenizer
