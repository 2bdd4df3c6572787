// SPDX-License-Identifier: Apache-2.0
// The keywords of JSON Schema, one schema at a time: which are supported, whether their values are
// well formed, and what several schemas that apply together mean.
//
// Threading: free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace heddle::grammar {

struct KeywordProblem {
  std::string keyword;
  std::string message;
  bool is_read = true;  // false: no code reads the keyword, so that the other keywords can still be
                        // used
};

// The keywords of an object schema that are malformed, or that restrict values and are not
// supported. All other keywords are annotations, and so are those whose value excludes nothing
// (`not: false`, `minItems: 0`). Subschemas are not checked.
[[nodiscard]] std::vector<KeywordProblem> check_keywords(const nlohmann::ordered_json& schema);

using TypeSet = uint8_t;
inline constexpr TypeSet kNull = 1;
inline constexpr TypeSet kBoolean = 2;
inline constexpr TypeSet kInteger = 4;
inline constexpr TypeSet kFraction = 8;  // non-integer numbers
inline constexpr TypeSet kString = 16;
inline constexpr TypeSet kArray = 32;
inline constexpr TypeSet kObject = 64;
inline constexpr TypeSet kAnyType = 127;

// The types of the values that a keyword concerns: kString for "minLength", kAnyType for "anyOf". 0
// for annotations, and for $defs and definitions.
[[nodiscard]] TypeSet types_of_keyword(std::string_view keyword);

// Whether a keyword of an object schema may make a value invalid, by itself or through what it
// refers to.
[[nodiscard]] bool may_exclude(const nlohmann::ordered_json& schema, std::string_view keyword);

// Schemas that apply together: objects in which check_keywords() found no problem. Booleans among
// them are ignored by the functions below.
using Schemas = std::vector<const nlohmann::ordered_json*>;

// The types allowed by `type` and `nullable` alone.
[[nodiscard]] TypeSet types_of(const Schemas& schemas);

// The types that the schemas' keywords concern; all types if there are no such keywords.
[[nodiscard]] TypeSet types_of_keywords(const Schemas& schemas);

// The values of the first enum or const; nullopt without either.
[[nodiscard]] std::optional<Schemas> values_of(const Schemas& schemas);

// Equality as in JSON Schema: 1 and 1.0 are equal, and the order of members does not matter.
[[nodiscard]] bool equal_values(const nlohmann::ordered_json& left,
                                const nlohmann::ordered_json& right);

// Removes the values of the schema's enum or const that violate its keywords for texts and numbers.
// Returns a problem for a keyword that concerns a list or an object among the values, or that is
// not supported.
[[nodiscard]] std::optional<KeywordProblem> keep_values_within(const nlohmann::ordered_json& schema,
                                                               Schemas& values);

// Whether a value has the type, and is in the enums and consts, of all schemas.
[[nodiscard]] bool are_values_valid(const Schemas& schemas, const nlohmann::ordered_json& value);

// The values of enum and const that satisfy all of the schemas; nullopt without either. Sets
// `problem` to a problem of keep_values_within(), and `at` to its schema.
[[nodiscard]] std::optional<Schemas> valid_values(const Schemas& schemas,
                                                  const nlohmann::ordered_json*& at,
                                                  std::optional<KeywordProblem>& problem);

[[nodiscard]] std::vector<std::string> required_of(const Schemas& schemas);

// The names that a schema's `propertyNames` allows; nullopt: all names.
[[nodiscard]] std::optional<Schemas> names_of(const nlohmann::ordered_json& schema);

struct Property {
  Schemas schemas;
  bool is_forbidden = false;
};

// The schemas that apply to the property `name`.
[[nodiscard]] Property property_of(const Schemas& schemas, const std::string& name);

// A count that check_keywords() accepted; values of 2^62 or more become 2^62 - 1.
[[nodiscard]] int64_t count_of(const nlohmann::ordered_json& value);

// A pattern for a format that is enforced; empty for other formats.
[[nodiscard]] std::string_view pattern_of_format(std::string_view format);

}  // namespace heddle::grammar
