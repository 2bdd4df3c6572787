// SPDX-License-Identifier: Apache-2.0
// The values of a JSON Schema that lists all of them, for forms that write values in another way
// than as JSON.
//
// Threading: a free function.
#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

namespace heddle::grammar {

// All values that a schema allows, in the order in which it names them: by enum, const, and the
// types boolean and null, in itself and in the schemas that $ref, allOf, anyOf and oneOf lead to,
// without those that its other keywords exclude. `root` is the document that `schema` is a part of.
// Nothing: it allows other values, too, more than 1024, or cannot be kept to.
[[nodiscard]] std::optional<std::vector<nlohmann::ordered_json>> listed_values(
    const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

}  // namespace heddle::grammar
