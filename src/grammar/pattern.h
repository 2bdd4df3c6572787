// SPDX-License-Identifier: Apache-2.0
// Pattern: a regular expression over characters in the syntax of ECMA-262, which JSON Schema uses.
//
// Supported: literals, escapes, `.`, \d \w \s and their opposites, \p{...} of general categories
// and a few scripts (unicode_classes.h), classes, groups (captures have no effect; also Python's
// (?P<name>..)), alternatives, the repeats * + ? {m} {m,} {m,n}, greedy or lazy (which is the same
// here), and ^ $ at the ends of the pattern or of its alternatives. Refused: look-around, back
// references, word boundaries and flags, which a finite automaton cannot express or does not need.
//
// Threading: a value.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include <heddle/status.h>

#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"
#include "grammar/counted_text.h"
#include "grammar/nfa.h"

namespace heddle::grammar {

struct PatternNode;

class Pattern {
 public:
  static constexpr size_t kMaxBytes = 16384;
  static constexpr int kMaxDepth = 64;
  static constexpr int kMaxRepeat = 10000;  // most repeats of anything but a single character

  // Parses a pattern. Error: kInvalidArgument with the position and the fault.
  static Result<Pattern> parse(std::string_view text);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // Whether the pattern contains a ^.
  [[nodiscard]] bool has_begin() const;

  // A pattern that repeats a character of one set.
  struct Repeated {
    CodePointSet set;
    CountRange range;
  };

  // The pattern as one repeated character, between ^ and $ if `is_anchored`. Nullopt for any other
  // pattern.
  [[nodiscard]] std::optional<Repeated> as_repeated(bool is_anchored) const;

  // Removes the bounds from the repeat of that character.
  void drop_counts();

  // Adds the texts that match the pattern as a whole: ^ and $ change nothing.
  void add_whole(Nfa& nfa, NfaState from, TextForm form, NfaState to) const;

  // Adds the texts that contain a match; ^ and $ are the text's ends. This is JSON Schema's
  // `pattern`.
  void add_search(Nfa& nfa, NfaState from, TextForm form, NfaState to) const;

 private:
  explicit Pattern(std::unique_ptr<PatternNode> root);

  std::unique_ptr<PatternNode> root_;
};

}  // namespace heddle::grammar
