// SPDX-License-Identifier: Apache-2.0
// The references of a JSON Schema by names ("$anchor", "$id" and URIs relative to it), rewritten as
// JSON pointers. Code that reads schemas then meets no other references, and "#" means the root
// everywhere.
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

// Limit for a URI, absolute or as written.
inline constexpr size_t kMaxUriBytes = size_t{2} << 10;
// Limit for all written pointers, their targets and the absolute URIs together: four times the
// largest schema.
inline constexpr size_t kMaxReferenceBytes = size_t{1} << 20;

// A copy of the schema in which each "$ref" whose target is in the schema is a JSON pointer from
// its root, and no part has an "$id". "$dynamicRef" and "$recursiveRef" become "$ref" where only
// one part of the schema has the anchor that they may lead to. References that lead to no part of
// the schema, or to one of several with the same name, keep another form than that of a pointer. A
// part that a pointer names need not exist. Nothing: the schema has pointers only. Cost: linear in
// the schema, kMaxReferenceBytes, and kMaxUriBytes for each reference with a URI. Error:
// kInvalidArgument for a schema with names beyond these or kMaxSchemaBytes (json_schema.h).
[[nodiscard]] Result<std::optional<nlohmann::ordered_json>> point_references(
    const nlohmann::ordered_json& schema);

// The part of `root` that a reference of the form "#" or "#/a/b" leads to; null if there is none.
// `path` becomes its JSON pointer, without the escapes of URIs.
[[nodiscard]] const nlohmann::ordered_json* part_at(const nlohmann::ordered_json& root,
                                                    std::string_view reference,
                                                    std::string* path = nullptr);

// A step of a JSON pointer in a URI fragment, unescaped; none for broken escapes.
[[nodiscard]] std::optional<std::string> pointer_step(std::string_view text);

// A step of a JSON pointer.
[[nodiscard]] std::string escaped_step(std::string_view step);

}  // namespace heddle::grammar
