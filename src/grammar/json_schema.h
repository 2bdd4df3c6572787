// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft 2020-12) as a grammar of the JSON texts that are valid, or of the same values
// as Python writes them in a call.
//
// A schema that is accepted never lets an invalid document through. It may let fewer through than
// the schema does: properties come in the schema's order; an object with `properties` has no
// others unless `additionalProperties` says so; a schema without `type` means the types that its
// keywords speak of; numbers have at most 18 digits; between tokens there is nothing, a blank, or a
// line break with indentation.
//
// Enforced: type, enum, const, properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, minLength, maxLength, pattern, minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf (of integers, 1 to 1000), anyOf, allOf, $ref within the document
// (recursive too), oneOf where its branches exclude each other visibly (OpenAPI's discriminator
// makes its property required in them), minProperties of 0 and 1, minProperties and maxProperties
// where they follow from the rest, propertyNames of {"type": "string"} with or without an enum,
// uniqueItems of a short enum, nullable beside type (OpenAPI 3.0), and format date, time,
// date-time, email, uuid, ipv4. Beside enum and const the keywords for texts and numbers choose
// among their values. Other formats are annotations, as in the draft, like title, description,
// default, examples, deprecated, readOnly, writeOnly, $comment, $schema, contentEncoding,
// contentMediaType, contentSchema, xml, externalDocs and names that begin with "x-". All other
// keywords are refused.
//
// Threading: free functions.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "grammar/nfa.h"
#include "grammar/value_spelling.h"

namespace heddle::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{256} << 10;
inline constexpr int kMaxSchemaDepth = 64;

struct JsonSchemaOptions {
  bool allows_whitespace = true;  // false: nothing between the tokens of JSON
  // As Python's arguments no other types than objects are written, names of properties are those of
  // arguments, and a choice of whole objects (`enum`, `const`) is refused.
  ValueForm form = ValueForm::kJson;
};

// Parses JSON text. Error: kInvalidArgument for text that is no JSON, too long, or nested more
// than kMaxSchemaDepth deep.
Result<nlohmann::ordered_json> parse_schema(std::string_view text);

// Adds the documents of a schema between two states. `schema` has at most kMaxSchemaDepth levels.
// Error: kInvalidArgument naming the place in the schema, what is there and what to do about it; it
// is also `nfa`'s status then.
Status add_json_schema(Nfa& nfa, NfaState from, const nlohmann::ordered_json& schema,
                       const JsonSchemaOptions& options, NfaState to);

}  // namespace heddle::grammar
