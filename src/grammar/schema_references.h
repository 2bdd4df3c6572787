// SPDX-License-Identifier: Apache-2.0
// References of a JSON Schema by names ("$anchor", "$id" and URIs relative to it), rewritten as
// JSON pointers. Other code that reads schemas then finds only JSON pointers, and "#" always means
// the root.
//
// Threading: free functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <heddle/status.h>

namespace heddle::grammar {

// The most bytes of a URI, absolute or as written.
inline constexpr size_t kMaxUriBytes = size_t{2} << 10;
// The most bytes of all written pointers, their targets and the absolute URIs together: four times
// the largest schema.
inline constexpr size_t kMaxReferenceBytes = size_t{1} << 20;

// A copy of the schema in which each "$ref" with a target in the schema is a JSON pointer from the
// root, and no part has an "$id". "$dynamicRef" and "$recursiveRef" become "$ref" if only one part
// of the schema has the anchor that they may refer to. References without a target in the schema,
// or to one of several parts with the same name, keep a form that is not a pointer's. The target of
// a pointer need not exist. Nullopt: the schema has only pointers. Cost: linear in the schema,
// kMaxReferenceBytes, and kMaxUriBytes for each reference with a URI. Error: kInvalidArgument for a
// schema whose names exceed these limits or kMaxSchemaBytes (json_schema.h).
[[nodiscard]] Result<std::optional<nlohmann::ordered_json>> point_references(
    const nlohmann::ordered_json& schema);

// The part of `root` to which a reference of the form "#" or "#/a/b" refers; null if there is none.
// Sets `path` to its JSON pointer, without the escapes of URIs.
[[nodiscard]] const nlohmann::ordered_json* part_at(const nlohmann::ordered_json& root,
                                                    std::string_view reference,
                                                    std::string* path = nullptr);

// Unescapes a step of a JSON pointer in a URI fragment; nullopt for broken escapes.
[[nodiscard]] std::optional<std::string> pointer_step(std::string_view text);

// A member name, escaped as a step of a JSON pointer.
[[nodiscard]] std::string escaped_step(std::string_view step);

}  // namespace heddle::grammar
