// SPDX-License-Identifier: Apache-2.0
// Compiles a JSON Schema (draft 2020-12) to a grammar of the JSON texts that are valid, or of the
// same values as Python or Gemma 4 writes them in a call.
//
// If a schema is accepted, its grammar never accepts an invalid document. It may accept fewer
// documents than the schema: properties are in the schema's order; an object with `properties` has
// no others unless `additionalProperties` allows them; a schema without `type` means the types that
// its keywords concern; numbers have at most 18 digits; between tokens there is nothing, a blank,
// or a line break with indentation.
//
// Enforced: type, enum, const, properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, minLength, maxLength, pattern, minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf (of integers, 1 to 1000), anyOf, allOf, $ref within the document
// (also recursive; its forms are in schema_references.h), oneOf if its branches visibly exclude one
// another (OpenAPI's discriminator makes its property required in them), minProperties of 0 and 1,
// minProperties and maxProperties if they follow from the rest, propertyNames of {"type": "string"}
// with or without an enum, uniqueItems of a short enum, nullable next to type (OpenAPI 3.0), not {}
// and not true, which nothing satisfies, and format date, time, date-time, email, uuid, ipv4. Next
// to enum and const, the keywords for texts and numbers and these formats select among the listed
// values. Refused: the other keywords of any draft that restrict values: any other not, if,
// patternProperties, dependencies, dependentRequired, dependentSchemas, contains, unevaluatedItems,
// unevaluatedProperties, a $recursiveRef or $dynamicRef that may lead to several places, unless
// their value excludes nothing. All other keywords, and other formats, are annotations, as in the
// draft. A schema that no document satisfies is refused, too (contradictions.h).
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

// Called repeatedly during compilation. If it returns an error, compilation ends with that error.
using CompileCheck = std::function<Status()>;

struct JsonSchemaOptions {
  bool allows_whitespace = true;  // false: no white space between JSON tokens
  // The notation of values. Python arguments can only be objects, whose property names are argument
  // names; a schema that lists whole objects (`enum`, `const`) is refused.
  ValueForm form = ValueForm::kJson;
  std::string text_mark = {};  // mark around texts, for kGemmaArguments: special_token_bytes() or
                               // kGemmaTextMark
  bool refuses_contradictions = true;   // false: an unsatisfiable schema is no error and adds no
                                        // documents
  const CompileCheck* check = nullptr;  // null: compilation is not interrupted
};

// Parses JSON text. Error: kInvalidArgument for invalid, too long, or too deep JSON (more than
// kMaxSchemaDepth levels).
Result<nlohmann::ordered_json> parse_schema(std::string_view text);

// A schema without the keywords that cannot be enforced; it allows more documents than the
// original.
struct WeakenedSchema {
  nlohmann::ordered_json schema;      // null: nothing can be enforced
  std::vector<std::string> left_out;  // the removed keywords, as error messages name them
  size_t num_states = 0;              // number of states of its automaton
};

// Removes exactly the keywords that add_json_schema() refuses; a oneOf becomes an anyOf; of
// keywords that contradict one another one is removed. References become JSON pointers
// (schema_references.h). Works in rounds, at most 100. A round removes all keywords that are wrong
// by themselves, or one of each place, or one of those that contradict one another. Cost: that of
// add_json_schema() per round. Error: that of options.check.
Result<WeakenedSchema> weaken_schema(nlohmann::ordered_json schema,
                                     const JsonSchemaOptions& options);

// Adds the documents of a schema between two states. `schema` must have at most kMaxSchemaDepth
// levels. Error: kInvalidArgument naming the place in the schema, the fault and a remedy; it also
// becomes `nfa`'s status.
Status add_json_schema(Nfa& nfa, NfaState from, const nlohmann::ordered_json& schema,
                       const JsonSchemaOptions& options, NfaState to);

}  // namespace heddle::grammar
