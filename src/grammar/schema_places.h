// SPDX-License-Identifier: Apache-2.0
// SchemaPlaces: the places of a JSON Schema at which values occur, each of which becomes a rule of
// the grammar, and the data that they share during compilation: the document, parts of JSON, the
// first error.
//
// Threading: thread-compatible. The Nfa and the schema must outlive this object.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "grammar/nfa.h"
#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"
#include "grammar/value_spelling.h"

namespace heddle::grammar {

// A place: values that satisfy all of the schemas.
struct SchemaPlace {
  RuleId rule;
  Schemas schemas;
  const ObjectSpelling* objects = &kBraces;
};

class SchemaPlaces {
 public:
  SchemaPlaces(Nfa& nfa, const nlohmann::ordered_json& root, const JsonSchemaOptions& options);

  [[nodiscard]] Nfa& nfa() { return nfa_; }

  [[nodiscard]] JsonParts& parts() { return parts_; }

  [[nodiscard]] SchemaDocument& document() { return document_; }

  [[nodiscard]] const SchemaDocument& document() const { return document_; }

  [[nodiscard]] ValueForm form() const { return form_; }

  // The rule of a place. The same schemas, in any order, have the same rule.
  RuleId rule(Schemas schemas);

  // Adds a rule for schemas whose objects are written as the arguments of a call.
  RuleId add_arguments(Schemas schemas);

  // Returns a place whose rule is still empty, each place once; null if there are no more.
  const SchemaPlace* take_unwritten();

  // The place for which a rule was made; null for other rules.
  [[nodiscard]] const SchemaPlace* place_of(RuleId rule) const;

  // Reports an error; the first one becomes the Nfa's. If problems are only collected, compilation
  // continues.
  void fail(SchemaDocument::Problem problem, const std::string& message);

  // SchemaDocument::unfold(), with errors reported. Returns false if the schemas are refused.
  [[nodiscard]] bool unfold(const nlohmann::ordered_json& schema, Schemas& chain,
                            UnfoldedSchema& out);

  // The values of `enum` and `const` that satisfy all other keywords; nullopt without either.
  [[nodiscard]] std::optional<Schemas> valid_values(const Schemas& schemas);

  [[nodiscard]] std::string spell(const nlohmann::ordered_json& value) const {
    return spell_value(value, form_, parts_.texts());
  }

 private:
  Nfa& nfa_;
  const ValueForm form_;
  JsonParts parts_;
  SchemaDocument document_;
  std::map<Schemas, RuleId> rules_;
  std::deque<SchemaPlace> places_;  // indexed as the rules; addresses never change
  std::vector<const SchemaPlace*> unwritten_;
};

}  // namespace heddle::grammar
