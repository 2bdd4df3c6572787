// SPDX-License-Identifier: Apache-2.0
// The values of a JSON Schema that lists all its values, for forms that write values in a notation
// other than JSON.
//
// Threading: a free function.
#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

namespace heddle::grammar {

// All values that a schema allows, in the order in which it names them: by enum, const, and the
// types boolean and null, in the schema itself and in those reached by $ref, allOf, anyOf and
// oneOf, without values that other keywords exclude. `root` is the document that contains `schema`.
// Nullopt if it allows other values, too, or more than 1024, or cannot be enforced.
[[nodiscard]] std::optional<std::vector<nlohmann::ordered_json>> listed_values(
    const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

}  // namespace heddle::grammar
