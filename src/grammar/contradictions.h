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
  std::string place;                // SchemaDocument::shown_path_of()
  std::string message;

  // Without one of these keywords there would be no contradiction, the problem's among them.
  std::vector<std::pair<const nlohmann::ordered_json*, std::string>> keywords = {};

  // Names in the problem's `required` that are each a contradiction of the same kind.
  std::vector<std::string> more_names = {};
};

// By rule: whether a text matches it. From `first_rule` on it is found out; none of them reaches a
// state before `first_state`. `known` says it of earlier rules, and has at least those that are
// called. Cost: linear in the rules and states from there on, and O(rules / 64).
[[nodiscard]] std::vector<bool> matching_rules(const Nfa& nfa, RuleId first_rule,
                                               NfaState first_state,
                                               const std::vector<bool>& known = {});

// The path through a rule that calls the fewest rules for which `is_matching` is false.
struct Way {
  size_t num_unmatched;
  std::vector<RuleId> unmatched;  // in call order
};

// Nullopt: no path, even if all calls were possible.
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
