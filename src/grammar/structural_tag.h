// SPDX-License-Identifier: Apache-2.0
// Structural tags: answers of free text in which the parts between certain tags match a schema. The
// JSON that describes them is that of SGLang and XGrammar, in both forms; python_arguments and
// gemma_arguments are Heddle's own types:
//
//   {"structures": [{"begin": B, "schema": S, "end": E}...], "triggers": [T...]}
//   {"format": F}, F by its type:
//     const_string {value}, json_schema {json_schema}, python_arguments {json_schema},
//     gemma_arguments {json_schema}, regex {pattern}, grammar {grammar}, token {token}, any_text
//     {excludes}, sequence {elements}, or {elements}, tag {begin, content, end}, triggered_tags
//     {triggers, tags, at_least_one, stop_after_first}, tags_with_separator {tags, separator,
//     at_least_one, stop_after_first}
//
// A format may have a schema under "stands_for", for example free text in place of one of several
// texts: the schema is only checked. A schema next to "strict": false is enforced as far as
// possible; "of" names the tool whose arguments it describes. With "optional": true a schema that
// no value satisfies is not an error: the part is then never written. Python's and Gemma's
// arguments are an object in the form of value_spelling.h. A token is the special token with that
// spelling, or the text if the vocabulary has no such token; a tag's `end` may be a token, too.
// any_text contains none of the texts in `excludes`. Free text may contain anything but a trigger;
// a trigger begins one of the tags that begin with it. With `at_least_one`, triggered tags begin
// with a tag. tags_with_separator allows nothing but the separator between tags. The text of a tag
// with `any_text` ends at the first `end`.
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

// Adds a structural tag between two states. `tag` must have at most kMaxSchemaDepth levels.
// `vocabulary` may be null: there are no special tokens then. Appends to `left_out` the keywords of
// schemas with "strict": false that are not enforced. Error: kInvalidArgument naming the place and
// the fault; it also becomes `nfa`'s status.
Status add_structural_tag(Nfa& nfa, NfaState from, const nlohmann::ordered_json& tag,
                          const JsonSchemaOptions& options, const VocabularyMasks* vocabulary,
                          std::vector<std::string>& left_out, NfaState to);

}  // namespace heddle::grammar
