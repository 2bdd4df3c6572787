// SPDX-License-Identifier: Apache-2.0
// The keywords of JSON Schema, one schema at a time: which are served, whether their values are
// right, and what several schemas that apply together say.
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
  bool is_read = true;  // false: nothing reads the keyword, so that the others can be read
};

// Keywords of an object schema that are wrong, or that say what is valid and are not served. All
// others are annotations, as are those whose value excludes nothing (`not: false`, `minItems: 0`).
// Subschemas are not checked.
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

// The types of the values that a keyword speaks of: "minLength" of kString, "anyOf" of kAnyType. 0
// for annotations, and for $defs and definitions.
[[nodiscard]] TypeSet types_of_keyword(std::string_view keyword);

// Whether a keyword of an object schema may make a value invalid, by itself or by what it refers
// to.
[[nodiscard]] bool may_exclude(const nlohmann::ordered_json& schema, std::string_view keyword);

// The following take schemas, objects that check_keywords() found nothing wrong with, that apply
// together; booleans among them say nothing.
using Schemas = std::vector<const nlohmann::ordered_json*>;

// By `type` and `nullable` only.
[[nodiscard]] TypeSet types_of(const Schemas& schemas);

// The types that their keywords speak of; any without such keywords.
[[nodiscard]] TypeSet types_of_keywords(const Schemas& schemas);

// The values of the first enum or const; none without either.
[[nodiscard]] std::optional<Schemas> values_of(const Schemas& schemas);

// As JSON Schema compares: 1 and 1.0 are equal, objects whatever their order.
[[nodiscard]] bool equal_values(const nlohmann::ordered_json& left,
                                const nlohmann::ordered_json& right);

// Leaves those values of an enum or const that satisfy the keywords for texts and numbers beside
// it. A problem: one that speaks of a list or an object among the values, or that is not served.
[[nodiscard]] std::optional<KeywordProblem> keep_values_within(const nlohmann::ordered_json& schema,
                                                               Schemas& values);

// Whether a value has the type, and is among the enums and consts, of all schemas.
[[nodiscard]] bool are_values_valid(const Schemas& schemas, const nlohmann::ordered_json& value);

// The values of enum and const that satisfy all of the schemas; nothing without either. A problem
// of keep_values_within() goes into `problem`, and its schema into `at`.
[[nodiscard]] std::optional<Schemas> valid_values(const Schemas& schemas,
                                                  const nlohmann::ordered_json*& at,
                                                  std::optional<KeywordProblem>& problem);

[[nodiscard]] std::vector<std::string> required_of(const Schemas& schemas);

// The names that a schema's `propertyNames` allows; nullopt: all.
[[nodiscard]] std::optional<Schemas> names_of(const nlohmann::ordered_json& schema);

struct Property {
  Schemas schemas;
  bool is_forbidden = false;
};

// The schemas that apply to the property `name`.
[[nodiscard]] Property property_of(const Schemas& schemas, const std::string& name);

// A count that check_keywords() accepted; one of 2^62 or more counts as 2^62 - 1.
[[nodiscard]] int64_t count_of(const nlohmann::ordered_json& value);

// A pattern for the formats that are enforced; empty for others.
[[nodiscard]] std::string_view pattern_of_format(std::string_view format);

}  // namespace heddle::grammar
