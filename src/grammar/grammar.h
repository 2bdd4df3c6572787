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
  std::string text;  // the schema, regex, grammar or structural tag; unused for kJsonObject

  // If not empty, the answer begins with any text up to the first occurrence of this text, and at
  // most two line breaks after it: for models that reason before they answer. With
  // `free_text_begin`, this text is optional and must begin with `free_text_begin`. Both are
  // special tokens if the vocabulary has one with that spelling.
  std::string free_text_end;
  std::string free_text_begin;
  bool allows_whitespace = true;  // allows white space between JSON tokens

  auto operator<=>(const GrammarSource&) const = default;
};

// Compiles a grammar. `vocabulary` has the special tokens that a structural tag may name; null:
// none. Appends to `left_out`, if not null, the keywords of a structural tag's non-strict schemas
// that are not enforced. `check` may be null.
// Cost: some milliseconds for schemas of everyday size; at most kMaxDfaStates states and
// kMaxSubsetWork steps, about a second.
// Error: kInvalidArgument with the place, the fault and a remedy; the error of `check`.
Result<Automaton> compile(const GrammarSource& source, const VocabularyMasks* vocabulary = nullptr,
                          std::vector<std::string>* left_out = nullptr,
                          const CompileCheck* check = nullptr);

}  // namespace heddle::grammar
