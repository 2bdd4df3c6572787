// SPDX-License-Identifier: Apache-2.0
// Contradictions in a JSON Schema: why a schema whose keywords can all be enforced allows no
// document, and which keywords cause it. The result is a smallest set of keywords, at one place of
// the schema, that no value satisfies together.
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
  SchemaDocument::Problem problem;  // the part of the schema whose removal ends the contradiction
  std::string place;                // the place as SchemaDocument::shown_path_of() shows it
  std::string message;

  // The keywords that contradict one another, including the problem's. Without any one of them
  // there is no contradiction.
  std::vector<std::pair<const nlohmann::ordered_json*, std::string>> keywords = {};

  // Further names in the problem's `required` that each cause a contradiction of the same kind.
  std::vector<std::string> more_names = {};
};

// For each rule, whether any text matches it. Results are computed for rules from `first_rule` on,
// none of which reaches a state before `first_state`. `known` has the results of earlier rules, at
// least of those that are called. Cost: linear in the rules and states from there on, and O(rules /
// 64).
[[nodiscard]] std::vector<bool> matching_rules(const Nfa& nfa, RuleId first_rule,
                                               NfaState first_state,
                                               const std::vector<bool>& known = {});

// The path through a rule that calls the fewest rules that match no text.
struct Way {
  size_t num_unmatched;
  std::vector<RuleId> unmatched;  // the rules on the path that match no text, in call order
};

// The path through `rule` with the fewest unmatched rules; nullopt if there is no path even if all
// calls were possible.
[[nodiscard]] std::optional<Way> easiest_way(const Nfa& nfa, RuleId rule,
                                             const std::function<bool(RuleId)>& is_matching);

// Explains why no value satisfies all of `schemas`, although their parts can be satisfied: as few
// keywords as possible, such that `is_possible` is true if any one of them is removed. `document`
// supplies the names of places. Cost: a call of `is_possible` for each keyword.
[[nodiscard]] Contradiction contradiction_of(
    const Schemas& schemas, const SchemaDocument& document,
    const std::function<bool(const Schemas&)>& is_possible);

// Explains why no value satisfies `schemas`: each value would have to contain another one, at the
// place `inner`, without end.
[[nodiscard]] Contradiction endless_nesting(const Schemas& schemas, const Schemas& inner,
                                            const SchemaDocument& document);

}  // namespace heddle::grammar
