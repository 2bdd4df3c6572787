// SPDX-License-Identifier: Apache-2.0
// SchemaPlaces: the places of a JSON Schema at which values stand, each of which becomes a rule of
// the grammar, and what they share while they are compiled: the document, parts of JSON, the first
// error.
//
// Threading: thread-compatible. The Nfa and the schema outlive it.
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

// Values that satisfy all of the schemas.
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

  // The rule of a place; the same for the same schemas in any order.
  RuleId rule(Schemas schemas);

  // One more rule for schemas whose objects are written as the arguments of a call.
  RuleId add_arguments(Schemas schemas);

  // A place whose rule is still empty, each once; null when there are no more.
  const SchemaPlace* take_unwritten();

  // The place that a rule was made for; null for other rules.
  [[nodiscard]] const SchemaPlace* place_of(RuleId rule) const;

  // Reports an error; the first becomes the Nfa's. If problems are only collected, it continues.
  void fail(SchemaDocument::Problem problem, const std::string& message);

  // SchemaDocument::unfold(). False: the schemas are refused.
  [[nodiscard]] bool unfold(const nlohmann::ordered_json& schema, Schemas& chain,
                            UnfoldedSchema& out);

  // The values of `enum` and `const` that satisfy all else; nothing without either.
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
  std::deque<SchemaPlace> places_;  // by their rules; never moved
  std::vector<const SchemaPlace*> unwritten_;
};

}  // namespace heddle::grammar
