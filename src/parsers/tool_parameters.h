// SPDX-License-Identifier: Apache-2.0
// ToolParameters: the schema of a tool's arguments, split into one schema per property. Formats
// that write each argument between separate tags (call_form.h) constrain each property by its own
// schema.
//
// The root may be a `$ref` into the document or an `allOf`. Their properties are merged, provided
// that each property has only one schema. Other keywords that restrict the object as a whole are
// not enforced.
//
// References are JSON pointers from the root (grammar/schema_references.h).
//
// Threading: thread-compatible. The schema must outlive this object, which points into it.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace heddle::parsers {

class ToolParameters {
 public:
  explicit ToolParameters(const nlohmann::ordered_json& root);

  using Property = std::pair<std::string, const nlohmann::ordered_json*>;

  // The properties in the document's order.
  [[nodiscard]] const std::vector<Property>& properties() const { return properties_; }

  // False if the schema lists no properties and allows any properties.
  [[nodiscard]] bool has_properties() const { return has_properties_; }

  [[nodiscard]] bool requires_property(const std::string& name) const {
    return required_.contains(name);
  }

  // The first statement about the whole object that the properties cannot express, with its
  // keyword: "`anyOf` at the root". Empty if there is none.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  // A standalone schema for `property`: `$ref` resolves as in the whole schema. `document` contains
  // `property`. `num_bytes_left` limits the copies in a tool's properties; a reference whose target
  // no longer fits is dropped.
  [[nodiscard]] nlohmann::ordered_json as_document(const nlohmann::ordered_json& property,
                                                   nlohmann::ordered_json document,
                                                   size_t& num_bytes_left) const;

 private:
  using Schemas = std::vector<const nlohmann::ordered_json*>;

  void add_part(const nlohmann::ordered_json& part, Schemas& chain);
  void merge_properties();
  void merge_required();
  void check_additional_properties();
  void set_problem(std::string problem);

  const nlohmann::ordered_json& root_;
  Schemas parts_;  // the root and the other schemas that apply to the same object
  std::vector<Property> properties_;
  std::set<std::string> required_;
  bool has_properties_ = false;
  std::string problem_;
};

}  // namespace heddle::parsers
