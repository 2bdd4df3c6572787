// SPDX-License-Identifier: Apache-2.0
// The numbers and the texts that JSON Schemas allow, as parts of a grammar.
//
// Threading: free functions.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "grammar/json_parts.h"
#include "grammar/schema_keywords.h"

namespace heddle::grammar {

// A keyword that is not supported, or that needs too many states, and the schema that has it.
struct ScalarProblem {
  const nlohmann::ordered_json* at;
  std::string keyword;
  std::string message;
};

// Adds the values that all of `schemas` allow; adds nothing if they allow none. After a problem the
// states added are useless. `types` has kInteger, kFraction or both.
[[nodiscard]] std::optional<ScalarProblem> add_numbers(JsonParts& parts, NfaState from,
                                                       const Schemas& schemas, TypeSet types,
                                                       NfaState to);
[[nodiscard]] std::optional<ScalarProblem> add_texts(JsonParts& parts, NfaState from,
                                                     const Schemas& schemas, NfaState to);

}  // namespace heddle::grammar
