// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft 2020-12) as a grammar of the JSON texts that are valid, or of the same values
// as Python or Gemma 4 writes them in a call.
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
// (recursive too; its forms are in schema_references.h), oneOf where its branches exclude each
// other visibly (OpenAPI's discriminator makes its property required in them), minProperties of 0
// and 1, minProperties and maxProperties where they follow from the rest, propertyNames of
// {"type": "string"} with or without an enum, uniqueItems of a short enum, nullable beside type
// (OpenAPI 3.0), not {} and true, which nothing satisfies, and format date, time, date-time, email,
// uuid, ipv4. Beside enum and const the keywords for texts and numbers, and those formats, choose
// among their values. Refused: the other keywords of any draft that say what is valid: another not,
// if, patternProperties, dependencies, dependentRequired, dependentSchemas, contains,
// unevaluatedItems, unevaluatedProperties, a $recursiveRef or $dynamicRef that may lead to several
// places, unless their value excludes nothing. All others, and other formats, are annotations, as
// the draft has it. Refused, too: a schema that no document satisfies (contradictions.h).
//
// Threading: free functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/status.h>

#include "grammar/nfa.h"
#include "grammar/value_spelling.h"

namespace heddle::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{256} << 10;
inline constexpr int kMaxSchemaDepth = 64;

// Called from time to time during compilation, which ends with its error if it returns one.
using CompileCheck = std::function<Status()>;

struct JsonSchemaOptions {
  bool allows_whitespace = true;  // false: nothing between the tokens of JSON
  // Python arguments can only be objects, whose property names are argument names; a choice of
  // whole objects (`enum`, `const`) is refused.
  ValueForm form = ValueForm::kJson;
  std::string text_mark = {};  // for kGemmaArguments: special_token_bytes() or kGemmaTextMark
  bool refuses_contradictions = true;   // false: an unsatisfiable schema adds no documents
  const CompileCheck* check = nullptr;  // null: compilation is not interrupted
};

// Parses JSON text. Error: kInvalidArgument for invalid, too long, or too deep JSON (more than
// kMaxSchemaDepth levels).
Result<nlohmann::ordered_json> parse_schema(std::string_view text);

// A schema without the keywords that cannot be enforced; it allows more documents.
struct WeakenedSchema {
  nlohmann::ordered_json schema;      // null: nothing can be enforced
  std::vector<std::string> left_out;  // removed keywords, as errors name them
  size_t num_states = 0;              // states of its automaton
};

// Leaves out the keywords that add_json_schema() refuses, one by one, and nothing else; a oneOf
// becomes an anyOf; of keywords that contradict each other one is left out. References become JSON
// pointers (schema_references.h). Cost: that of add_json_schema() for each round, of at most 100. A
// round leaves out all keywords that are wrong by themselves, or one of each place, or one of those
// that contradict each other. Error: that of options.check.
Result<WeakenedSchema> weaken_schema(nlohmann::ordered_json schema,
                                     const JsonSchemaOptions& options);

// Adds the documents of a schema between two states. `schema` has at most kMaxSchemaDepth levels.
// Error: kInvalidArgument naming the place in the schema, what is there and what to do about it; it
// is also `nfa`'s status then.
Status add_json_schema(Nfa& nfa, NfaState from, const nlohmann::ordered_json& schema,
                       const JsonSchemaOptions& options, NfaState to);

}  // namespace heddle::grammar
