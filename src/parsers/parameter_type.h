// SPDX-License-Identifier: Apache-2.0
// ParameterType: which JSON the plain text of a tool's parameter stands for, by the tool's schema.
// Formats that write arguments as tagged text ("<parameter=count>5</parameter>") do not tell 5 from
// "5"; the schema does. The form that a forced call is held to (call_form.h) goes by the same
// types.
//
// A schema states types by `type`, `nullable`, the values of `enum` and `const`, and without these
// by the keywords that speak of one type alone (properties, items, minimum, pattern ...); by all of
// these in the schemas that `$ref` within the tool's parameters, allOf, anyOf and oneOf lead to.
// Of several that apply together only those types count that all of them allow.
//
// Threading: thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace heddle::parsers {

class ParameterType {
 public:
  // The type without a schema: a list or an object if the text is one, otherwise a string.
  ParameterType() = default;

  // The type of a tool's parameter. `tools` is a request's list of {"function": {"name": ..,
  // "parameters": {"properties": ..}}}; entries of another form are ignored. A parameter that the
  // schema does not name has the type in `additionalProperties`. Only JSON pointers count as
  // references (point_tools()). Cost: reads up to 1,000 parts of the schema.
  static ParameterType of(const nlohmann::ordered_json& tools, std::string_view tool,
                          std::string_view parameter);

  // The type of a schema; `root` is the document that its references resolve in.
  static ParameterType of_schema(const nlohmann::ordered_json& schema,
                                 const nlohmann::ordered_json& root);

  // The keyword with which a schema, or one that it leads to, bounds a text: "maxLength". Empty:
  // none.
  static std::string_view text_bound_of(const nlohmann::ordered_json& schema,
                                        const nlohmann::ordered_json& root);

  // Any JSON; text that is none is a string.
  static ParameterType json();

  // A string whatever the text is, "null" too.
  static ParameterType text();

  // Whether a value is a string unless it reads "null", so that it need not be complete to be
  // emitted.
  [[nodiscard]] bool is_string() const {
    return !kinds_.empty() && kinds_.front() == Kind::kString;
  }

  // Whether no schema says anything: what a value is shows in its first character that is no white
  // space, by begins_structure().
  [[nodiscard]] bool is_unsaid() const { return kinds_.empty(); }

  [[nodiscard]] static bool begins_structure(char first) { return first == '{' || first == '['; }

  [[nodiscard]] bool may_be_string() const { return has(Kind::kString); }

  // Types beside strings and null.
  [[nodiscard]] bool may_be_number() const { return has(Kind::kInteger) || has(Kind::kNumber); }

  [[nodiscard]] bool may_be_structure() const { return has(Kind::kStructure); }

  [[nodiscard]] bool may_be_boolean() const { return has(Kind::kBoolean); }

  // Whether "null", in any case, is null.
  [[nodiscard]] bool may_be_null() const { return may_be_null_; }

  // The JSON text of a complete value. The first type that the text fits is used; a text that fits
  // none becomes a string. If the schema lists all values and none of its strings could be read as
  // another type, strings are tried last. A boolean is true for "true" in any case and false for
  // any other text. Python's "None" is null unless the value may be a string.
  [[nodiscard]] std::string to_json(std::string_view text) const;

 private:
  // kWord: a listed text that can only be a string. `kinds_` never has it, because it is replaced
  // by kString.
  enum class Kind : uint8_t { kString, kWord, kInteger, kNumber, kBoolean, kStructure };

  class SchemaReader;

  void set(std::optional<std::vector<Kind>> kinds);

  [[nodiscard]] bool has(Kind kind) const {
    return std::find(kinds_.begin(), kinds_.end(), kind) != kinds_.end();
  }

  std::vector<Kind> kinds_;  // the first that fits a text counts
  bool may_be_null_ = true;
};

// The list of tools, or a copy in which each schema's references are JSON pointers, except for
// schemas beyond the limits of schema_references.h. Cost: point_references() for each tool; call it
// once per request, not per answer.
[[nodiscard]] std::shared_ptr<const nlohmann::ordered_json> point_tools(
    std::shared_ptr<const nlohmann::ordered_json> tools);

// Whether the text is "null" in any case.
[[nodiscard]] bool is_null_word(std::string_view text);

// Whether the text is "null" in any case, or may become it.
[[nodiscard]] bool may_become_null_word(std::string_view text);

}  // namespace heddle::parsers
