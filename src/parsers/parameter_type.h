// SPDX-License-Identifier: Apache-2.0
// ParameterType: decides, by the tool's schema, which JSON value the plain text of a parameter
// means. Formats that write arguments as tagged text ("<parameter=count>5</parameter>") do not
// distinguish 5 from "5"; the schema does. The form that constrains a forced call (call_form.h)
// uses the same types.
//
// A schema states types by `type`, `nullable`, and the values of `enum` and `const`; without these,
// by keywords that concern only one type (properties, items, minimum, pattern ...). Schemas reached
// by `$ref` within the tool's parameters, allOf, anyOf and oneOf count, too. Of several schemas
// that apply together, only the types that all of them allow count.
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
  // The type of a parameter without a schema: a list or an object if the text is one, otherwise a
  // string.
  ParameterType() = default;

  // The type of a tool's parameter. `tools` is a request's list of {"function": {"name": ..,
  // "parameters": {"properties": ..}}}; entries of another form are ignored. A parameter that the
  // schema does not name has the type in `additionalProperties`. Only JSON pointers count as
  // references (point_tools()). Cost: reads up to 1,000 parts of the schema.
  static ParameterType of(const nlohmann::ordered_json& tools, std::string_view tool,
                          std::string_view parameter);

  // The type of a schema; its references are resolved in the document `root`.
  static ParameterType of_schema(const nlohmann::ordered_json& schema,
                                 const nlohmann::ordered_json& root);

  // The keyword with which a schema, or one that it refers to, bounds a text: "maxLength". Empty if
  // there is none.
  static std::string_view text_bound_of(const nlohmann::ordered_json& schema,
                                        const nlohmann::ordered_json& root);

  // The type of any JSON; text that is not JSON is a string.
  static ParameterType json();

  // The type of a string whatever the text is, even "null".
  static ParameterType text();

  // Whether a value is a string unless it reads "null", so that it can be emitted before it is
  // complete.
  [[nodiscard]] bool is_string() const {
    return !kinds_.empty() && kinds_.front() == Kind::kString;
  }

  // Whether no schema states a type. The first character that is not white space then decides, by
  // begins_structure().
  [[nodiscard]] bool is_unsaid() const { return kinds_.empty(); }

  [[nodiscard]] static bool begins_structure(char first) { return first == '{' || first == '['; }

  [[nodiscard]] bool may_be_string() const { return has(Kind::kString); }

  // Whether types other than strings and null are possible.
  [[nodiscard]] bool may_be_number() const { return has(Kind::kInteger) || has(Kind::kNumber); }

  [[nodiscard]] bool may_be_structure() const { return has(Kind::kStructure); }

  [[nodiscard]] bool may_be_boolean() const { return has(Kind::kBoolean); }

  // Whether the text "null", in any case, means null.
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

  std::vector<Kind> kinds_;  // possible types; the first one that fits a text is used
  bool may_be_null_ = true;
};

// The list of tools, or a copy in which each schema's references are JSON pointers, except for
// schemas beyond the limits of schema_references.h. Cost: point_references() for each tool; call it
// once per request, not per answer.
[[nodiscard]] std::shared_ptr<const nlohmann::ordered_json> point_tools(
    std::shared_ptr<const nlohmann::ordered_json> tools);

// Whether the text is "null" in any case.
[[nodiscard]] bool is_null_word(std::string_view text);

// Whether the text is "null" in any case, or the beginning of it.
[[nodiscard]] bool may_become_null_word(std::string_view text);

}  // namespace heddle::parsers
