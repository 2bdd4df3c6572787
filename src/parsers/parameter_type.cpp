// SPDX-License-Identifier: Apache-2.0
#include "parsers/parameter_type.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/decimal.h"
#include "core/exact_json.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_references.h"
#include "parsers/json_scanner.h"
#include "parsers/loose_number.h"
#include "parsers/python_literal.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;         // most schemas in a chain of references
constexpr size_t kMaxSchemas = 1000;  // most schemas examined per parameter

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n\r") - begin + 1);
}

const Json* member(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto place = object.find(name);
  return place == object.end() ? nullptr : &*place;
}

const Json* parameters_of(const Json& tools, std::string_view tool) {
  if (!tools.is_array()) return nullptr;
  for (const Json& entry : tools) {
    const Json* const function = member(entry, "function");
    const Json* const name = function != nullptr ? member(*function, "name") : nullptr;
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>() != tool) {
      continue;
    }
    return member(*function, "parameters");
  }
  return nullptr;
}

std::string quoted(std::string_view text) {
  std::string json = "\"";
  append_escaped(text, json);
  json += '"';
  return json;
}

// An integer in JSON's notation, without a plus sign and leading zeros; none if the text is not an
// integer.
std::optional<std::string> integer_json(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  return (negative ? "-" : "") + std::string(text);
}

// An integer that is written with a fraction or an exponent: 5.0, 1.5e400.
std::optional<std::string> whole_number_json(std::string_view text) {
  std::optional<std::string> number = loose_number(text);
  return number && Decimal(*number).is_whole() ? std::move(number) : std::nullopt;
}

// Whether the text can only be a string, because no other type can be read from it.
bool is_word(std::string_view text) {
  const std::string_view value = trimmed(text);
  const std::string word = lower(value);
  return !value.empty() && !ParameterType::begins_structure(value.front()) && word != "true" &&
         word != "false" && !is_null_word(value) && !integer_json(value) && !loose_number(value);
}

// The number of nested lists and objects in JSON text.
size_t num_levels(std::string_view json) {
  size_t depth = 0;
  size_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// A list or object. It is within the arguments' object, so it may have one level less than that.
std::optional<std::string> structure_json(std::string_view text) {
  if (is_json(text)) {
    if (num_levels(text) >= JsonScanner::kMaxLevels) return std::nullopt;
    return std::string(text);
  }
  return python_literal_to_json(text);
}

}  // namespace

// Reads which types a schema states, in order of preference.
class ParameterType::SchemaReader {
 public:
  explicit SchemaReader(const Json& root) : root_(root) {}

  // The types that a schema states; none if it states no types.
  std::optional<std::vector<Kind>> kinds_of(const Json& schema, int depth = 0) {
    if (!schema.is_object() || depth > kMaxDepth || ++num_schemas_ > kMaxSchemas) {
      return std::nullopt;
    }
    std::optional<std::vector<Kind>> kinds;
    const auto allow_only = [&kinds](std::optional<std::vector<Kind>> others) {
      if (!others) return;
      kinds = kinds ? common(*kinds, *others) : std::move(others);
    };
    if (const Json* const type = member(schema, "type")) allow_only(named(*type));
    if (const Json* const value = member(schema, "const")) allow_only(kinds_of_value(*value));
    if (const Json* const values = member(schema, "enum")) allow_only(kinds_of_values(*values));
    if (const Json* const reference = member(schema, "$ref")) {
      const Json* const target = part_of(*reference);
      if (target != nullptr) allow_only(kinds_of(*target, depth + 1));
    }
    if (const Json* const all = member(schema, "allOf"); all != nullptr && all->is_array()) {
      for (const Json& one : *all) allow_only(kinds_of(one, depth + 1));
    }
    for (const char* const name : {"anyOf", "oneOf"}) {
      const Json* const branches = member(schema, name);
      if (branches == nullptr || !branches->is_array()) continue;
      std::optional<std::vector<Kind>> any;
      for (const Json& branch : *branches) add(kinds_of(branch, depth + 1), any);
      allow_only(std::move(any));
    }
    if (!kinds) kinds = kinds_of_keywords(schema);
    return kinds;
  }

  std::string_view text_bound_of(const Json& schema, int depth = 0) {
    if (!schema.is_object() || depth > kMaxDepth || ++num_schemas_ > kMaxSchemas) return {};
    for (const std::string_view name : {"pattern", "minLength", "maxLength"}) {
      if (member(schema, name) != nullptr) return name;
    }
    if (const Json* const reference = member(schema, "$ref")) {
      const Json* const target = part_of(*reference);
      const std::string_view bound =
          target != nullptr ? text_bound_of(*target, depth + 1) : std::string_view();
      if (!bound.empty()) return bound;
    }
    for (const char* const keyword : {"allOf", "anyOf", "oneOf"}) {
      const Json* const branches = member(schema, keyword);
      if (branches == nullptr || !branches->is_array()) continue;
      for (const Json& branch : *branches) {
        const std::string_view bound = text_bound_of(branch, depth + 1);
        if (!bound.empty()) return bound;
      }
    }
    return {};
  }

  // Types of an object's property, from all parts of the object's schema.
  std::optional<std::vector<Kind>> kinds_of_property(const Json& schema, std::string_view name,
                                                     int depth = 0) {
    if (!schema.is_object() || depth > kMaxDepth || ++num_schemas_ > kMaxSchemas) {
      return std::nullopt;
    }
    std::optional<std::vector<Kind>> kinds;
    const Json* const properties = member(schema, "properties");
    const Json* property = properties != nullptr ? member(*properties, name) : nullptr;
    if (property == nullptr) property = member(schema, "additionalProperties");
    if (property != nullptr) kinds = kinds_of(*property);
    if (const Json* const reference = member(schema, "$ref")) {
      const Json* const target = part_of(*reference);
      if (target != nullptr) add(kinds_of_property(*target, name, depth + 1), kinds);
    }
    for (const char* const keyword : {"allOf", "anyOf", "oneOf"}) {
      const Json* const branches = member(schema, keyword);
      if (branches == nullptr || !branches->is_array()) continue;
      for (const Json& branch : *branches) add(kinds_of_property(branch, name, depth + 1), kinds);
    }
    return kinds;
  }

 private:
  // The schema that a `$ref` refers to.
  const Json* part_of(const Json& reference) const {
    const std::string* const text = reference.get_ptr<const std::string*>();
    return text == nullptr ? nullptr : grammar::part_at(root_, *text);
  }

  static void add(Kind kind, std::vector<Kind>& kinds) {
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }

  static void add(const std::optional<std::vector<Kind>>& more,
                  std::optional<std::vector<Kind>>& kinds) {
    if (!more) return;
    if (!kinds) kinds.emplace();
    for (const Kind kind : *more) add(kind, *kinds);
  }

  // The kinds in both lists, in the order of `left`; if there is none, `left`.
  static std::vector<Kind> common(const std::vector<Kind>& left, const std::vector<Kind>& right) {
    const auto has = [](const std::vector<Kind>& kinds, Kind kind) {
      return std::ranges::find(kinds, kind) != kinds.end();
    };
    std::vector<Kind> both;
    for (const Kind kind : left) {
      if (has(right, kind) || (kind == Kind::kInteger && has(right, Kind::kNumber)) ||
          (kind == Kind::kWord && has(right, Kind::kString))) {
        add(kind, both);
      } else if (kind == Kind::kString && has(right, Kind::kWord)) {
        add(Kind::kWord, both);
      } else if (kind == Kind::kNumber && has(right, Kind::kInteger)) {
        add(Kind::kInteger, both);
      }
    }
    return both.empty() ? left : both;
  }

  // The kinds that `type` names. A type of only null gives an empty list.
  static std::optional<std::vector<Kind>> named(const Json& type) {
    std::vector<Kind> kinds;
    bool says = false;
    const auto add_name = [&](const Json& name) {
      if (!name.is_string()) return;
      const std::string word = lower(name.get_ref<const std::string&>());
      if (word == "any") return;
      says = true;
      if (const auto kind = kind_named(word)) add(*kind, kinds);
    };
    if (type.is_array()) {
      for (const Json& name : type) add_name(name);
    } else {
      add_name(type);
    }
    return says ? std::optional(std::move(kinds)) : std::nullopt;
  }

  static std::optional<Kind> kind_named(std::string_view word) {
    const auto begins = [&word](std::initializer_list<std::string_view> starts) {
      return std::ranges::any_of(
          starts, [&word](std::string_view start) { return word.starts_with(start); });
    };
    if (begins({"int", "uint", "long", "short", "unsigned"})) return Kind::kInteger;
    if (begins({"num", "float", "double"})) return Kind::kNumber;
    if (word == "boolean" || word == "bool" || word == "binary") return Kind::kBoolean;
    if (begins({"object", "array", "dict", "list"})) return Kind::kStructure;
    if (word == "null") return std::nullopt;
    return Kind::kString;
  }

  static std::optional<std::vector<Kind>> kinds_of_value(const Json& value) {
    if (value.is_null()) return std::vector<Kind>();
    if (const auto wide = wide_number_spelling(value)) {
      return std::vector<Kind>{is_integer_spelling(*wide) ? Kind::kInteger : Kind::kNumber};
    }
    if (value.is_string()) {
      return std::vector<Kind>{is_word(value.get_ref<const std::string&>()) ? Kind::kWord
                                                                            : Kind::kString};
    }
    return std::vector<Kind>{value.is_boolean()          ? Kind::kBoolean
                             : value.is_number_integer() ? Kind::kInteger
                             : value.is_number()         ? Kind::kNumber
                                                         : Kind::kStructure};
  }

  static std::optional<std::vector<Kind>> kinds_of_values(const Json& values) {
    std::optional<std::vector<Kind>> kinds;
    if (!values.is_array()) return kinds;
    for (const Json& value : values) add(kinds_of_value(value), kinds);
    return kinds;
  }

  static std::optional<std::vector<Kind>> kinds_of_keywords(const Json& schema) {
    grammar::TypeSet types = 0;
    for (const auto& [name, value] : schema.items()) {
      const grammar::TypeSet spoken_of = grammar::types_of_keyword(name);
      if (spoken_of != grammar::kAnyType) types |= spoken_of;
    }
    std::vector<Kind> kinds;
    const auto add_if = [&](int of_kind, Kind kind) {
      if ((types & of_kind) != 0) kinds.push_back(kind);
    };
    add_if(grammar::kObject | grammar::kArray, Kind::kStructure);
    add_if(grammar::kString, Kind::kString);
    add_if(grammar::kInteger | grammar::kFraction, Kind::kNumber);
    return kinds.empty() ? std::nullopt : std::optional(std::move(kinds));
  }

  const Json& root_;
  size_t num_schemas_ = 0;
};

ParameterType ParameterType::of(const Json& tools, std::string_view tool,
                                std::string_view parameter) {
  ParameterType type;
  const Json* const schema = parameters_of(tools, tool);
  if (schema != nullptr) type.set(SchemaReader(*schema).kinds_of_property(*schema, parameter));
  return type;
}

std::shared_ptr<const Json> point_tools(std::shared_ptr<const Json> tools) {
  if (tools == nullptr || !tools->is_array()) return tools;
  std::shared_ptr<Json> pointed;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json* const function = member((*tools)[i], "function");
    const Json* const schema = function != nullptr ? member(*function, "parameters") : nullptr;
    if (schema == nullptr) continue;
    Result<std::optional<Json>> own = grammar::point_references(*schema);
    if (!own.ok() || !*own) continue;
    if (pointed == nullptr) pointed = std::make_shared<Json>(*tools);
    (*pointed)[i]["function"]["parameters"] = **std::move(own);
  }
  return pointed != nullptr ? std::move(pointed) : std::move(tools);
}

ParameterType ParameterType::of_schema(const Json& schema, const Json& root) {
  ParameterType type;
  type.set(SchemaReader(root).kinds_of(schema));
  return type;
}

std::string_view ParameterType::text_bound_of(const Json& schema, const Json& root) {
  return SchemaReader(root).text_bound_of(schema);
}

// If only null is allowed, all other texts are strings.
void ParameterType::set(std::optional<std::vector<Kind>> kinds) {
  if (!kinds) return;
  kinds_ = *std::move(kinds);
  if (std::erase(kinds_, Kind::kWord) > 0 && !has(Kind::kString)) kinds_.push_back(Kind::kString);
  if (kinds_.empty()) kinds_.push_back(Kind::kString);
}

ParameterType ParameterType::json() {
  ParameterType type;
  type.kinds_ = {Kind::kStructure};
  return type;
}

ParameterType ParameterType::text() {
  ParameterType type;
  type.kinds_ = {Kind::kString};
  type.may_be_null_ = false;
  return type;
}

std::string ParameterType::to_json(std::string_view text) const {
  const std::string_view value = trimmed(text);
  if (may_be_null_ && is_null_word(value)) return "null";
  if (may_be_null_ && !is_unsaid() && !may_be_string() && value == "None") return "null";
  if (is_unsaid()) {
    const bool is_structure = !value.empty() && begins_structure(value.front());
    const auto json = is_structure ? structure_json(value) : std::nullopt;
    return json ? *json : quoted(text);
  }
  for (const Kind kind : kinds_) {
    std::optional<std::string> json;
    switch (kind) {
      case Kind::kString:
        json = quoted(text);
        break;
      case Kind::kInteger:
        json = integer_json(value);
        break;
      case Kind::kNumber:
        if (!has(Kind::kString) || value.find_first_of("xXoObB_") == std::string_view::npos) {
          json = loose_number(value);
        }
        break;
      case Kind::kBoolean:
        // If there are several types, only these words make it this one.
        if (kinds_.size() == 1 || lower(value) == "true" || lower(value) == "false") {
          json = lower(value) == "true" ? "true" : "false";
        }
        break;
      case Kind::kStructure:
        json = structure_json(value);
        break;
      case Kind::kWord:  // never in kinds_: replaced by kString
        break;
    }
    if (json) return *std::move(json);
  }
  if (has(Kind::kInteger) && !has(Kind::kString)) {
    if (auto integer = whole_number_json(value)) return *std::move(integer);
  }
  if (may_be_number() && !has(Kind::kString) && value.size() > 2 && value.starts_with('"') &&
      value.ends_with('"')) {
    const std::string inside = to_json(value.substr(1, value.size() - 2));
    if (!inside.starts_with('"')) return inside;
  }
  return quoted(text);
}

bool is_null_word(std::string_view text) { return lower(text.substr(0, 5)) == "null"; }

bool may_become_null_word(std::string_view text) {
  return text.size() <= 4 && std::string_view("null").starts_with(lower(text));
}

}  // namespace heddle::parsers
