// SPDX-License-Identifier: Apache-2.0
// Pattern: a regular expression in the syntax of ECMA-262, as JSON Schema writes them, over
// characters.
//
// Served: literals, escapes, `.`, \d \w \s and their opposites, \p{...} of general categories and
// a few scripts (unicode_classes.h), classes, groups (captures mean nothing; Python's (?P<name>..),
// too), alternatives, the repeats * + ? {m} {m,} {m,n}, greedy or lazy (the same here), and ^ $ at
// the ends of the pattern or of its alternatives. Refused: look-around, back references, word
// boundaries and flags, which a finite automaton cannot or need not know.
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
  static constexpr int kMaxRepeat = 10000;  // for anything but a single character

  // Error: kInvalidArgument with the position and what is wrong there.
  static Result<Pattern> parse(std::string_view text);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // It has a ^ somewhere.
  [[nodiscard]] bool has_begin() const;

  // A set of characters, repeated.
  struct Repeated {
    CodePointSet set;
    CountRange range;
  };

  // The pattern as one repeated character, between ^ and $ if `is_anchored`. Nullopt for other
  // patterns.
  [[nodiscard]] std::optional<Repeated> as_repeated(bool is_anchored) const;

  // Lets that character be repeated at will.
  void drop_counts();

  // The whole text is the pattern: ^ and $ change nothing.
  void add_whole(Nfa& nfa, NfaState from, TextForm form, NfaState to) const;

  // The text contains the pattern; ^ and $ tie it to the text's ends. JSON Schema's `pattern`.
  void add_search(Nfa& nfa, NfaState from, TextForm form, NfaState to) const;

 private:
  explicit Pattern(std::unique_ptr<PatternNode> root);

  std::unique_ptr<PatternNode> root_;
};

}  // namespace heddle::grammar
