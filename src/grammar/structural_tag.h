// SPDX-License-Identifier: Apache-2.0
// Structural tags: answers of free text in which some parts, between tags, keep to a schema. The
// JSON that describes them is SGLang's and XGrammar's, in both forms; python_arguments and
// gemma_arguments are types of Heddle's own:
//
//   {"structures": [{"begin": B, "schema": S, "end": E}...], "triggers": [T...]}
//   {"format": F}, F by its type:
//     const_string {value}, json_schema {json_schema}, python_arguments {json_schema},
//     gemma_arguments {json_schema}, regex {pattern}, grammar {grammar}, token {token}, any_text
//     {excludes}, sequence {elements}, or {elements}, tag {begin, content, end}, triggered_tags
//     {triggers, tags, at_least_one, stop_after_first}, tags_with_separator {tags, separator,
//     at_least_one, stop_after_first}
//
// A format may name a schema that it "stands_for", as free text does for one of texts: it is
// checked, and no more. A schema beside "strict": false is kept to as far as it can be, and is that
// of the arguments of the tool that "of" names. Beside "optional": true nothing need satisfy the
// schema: the part is then never written, where elsewhere that is an error. Python's and Gemma's
// arguments are an object in the form of value_spelling.h. A token is the special token of that
// spelling, or the text where the vocabulary has none; a tag's `end` may be one. Any text has
// none of the texts that it excludes. Free text may hold anything but a trigger; a trigger begins
// one of the tags that begin with it. With `at_least_one` triggered tags begin with a tag. Between
// tags with a separator stands nothing else. The text of a tag with `any_text` ends at the first
// `end`.
//
// Threading: a free function.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "grammar/json_schema.h"
#include "grammar/nfa.h"
#include "grammar/vocabulary_masks.h"

namespace heddle::grammar {

// `tag` has at most kMaxSchemaDepth levels. `vocabulary` may be null: it has no special tokens
// then. Appends to `left_out` what a schema with "strict": false does not hold an answer to. Error:
// kInvalidArgument naming the place and what is wrong there; it is also `nfa`'s status then.
Status add_structural_tag(Nfa& nfa, NfaState from, const nlohmann::ordered_json& tag,
                          const JsonSchemaOptions& options, const VocabularyMasks* vocabulary,
                          std::vector<std::string>& left_out, NfaState to);

}  // namespace heddle::grammar
