// SPDX-License-Identifier: Apache-2.0
// Contradictions in a JSON Schema: why a schema that can be kept to allows no document at all, and
// which of its keywords are to blame. At the place of the schema that no value satisfies, these are
// the fewest keywords that no value satisfies together.
//
// Threading: free functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "grammar/nfa.h"
#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"

namespace heddle::grammar {

struct Contradiction {
  SchemaDocument::Problem problem;  // what can be left out to end it
  std::string place;                // a JSON pointer
  std::string message;
};

// By rule, from `first_rule` on: whether a text matches it. No earlier rule is called, and no state
// before `first_state` is reached. Cost: linear in what is looked at.
[[nodiscard]] std::vector<bool> matching_rules(const Nfa& nfa, RuleId first_rule,
                                               NfaState first_state);

// The way through a rule that calls the fewest rules of which `is_matching` says no.
struct Way {
  size_t num_unmatched;
  std::optional<RuleId> first_unmatched;
};

// Nothing: there is no way even if all calls could be made.
[[nodiscard]] std::optional<Way> easiest_way(const Nfa& nfa, RuleId rule,
                                             const std::function<bool(RuleId)>& is_matching);

// Why no value satisfies all of `schemas`, though each of their parts may be satisfied: the
// keywords, as few as possible, without each of which `is_possible` says that a value would.
// `document` names places. Cost: `is_possible` for each keyword.
[[nodiscard]] Contradiction contradiction_of(
    const Schemas& schemas, const SchemaDocument& document,
    const std::function<bool(const Schemas&)>& is_possible);

// Why no value satisfies `schemas`: each would contain another one, of the place `inner`, without
// an end.
[[nodiscard]] Contradiction endless_nesting(const Schemas& schemas, const Schemas& inner,
                                            const SchemaDocument& document);

}  // namespace heddle::grammar
