// SPDX-License-Identifier: Apache-2.0
// The grammar that an answer must match, and its compilation. Start here.
//
// Threading: values; compile() may run on many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <heddle/status.h>

#include "grammar/automaton.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "grammar/vocabulary_masks.h"

namespace heddle::grammar {

enum class GrammarKind : uint8_t { kJsonObject, kJsonSchema, kRegex, kEbnf, kStructuralTag };

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;  // the schema, regex, grammar or tag; unused for kJsonObject

  // Not empty: any text comes first, up to the first occurrence of this, and at most two line
  // breaks; for models that reason before they answer. With `free_text_begin`, only text that
  // begins with it, if any. Each is a special token where the vocabulary has one of that spelling.
  std::string free_text_end;
  std::string free_text_begin;
  bool allows_whitespace = true;  // allow spaces between JSON tokens

  auto operator<=>(const GrammarSource&) const = default;
};

// `vocabulary` says which special tokens a structural tag may name; null: none. Appends to
// `left_out`, if given, what a schema of a structural tag that is not strict does not hold to.
// `check` may be null.
// Cost: some milliseconds for schemas of everyday size; at most kMaxDfaStates states and
// kMaxSubsetWork steps, about a second.
// Error: kInvalidArgument with the place, what is there and what to do about it; that of `check`.
Result<Automaton> compile(const GrammarSource& source, const VocabularyMasks* vocabulary = nullptr,
                          std::vector<std::string>* left_out = nullptr,
                          const CompileCheck* check = nullptr);

}  // namespace heddle::grammar
