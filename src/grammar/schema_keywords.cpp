// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/decimal.h"
#include "core/exact_json.h"
#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"
#include "grammar/counted_text.h"
#include "grammar/pattern.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

enum class Form : uint8_t {
  kAnything,
  kSchema,
  kSchemaList,
  kSchemaMap,
  kCount,
  kNumber,
  kString,
  kStringList,
  kType,
  kEnum,
  kDivisor,
  kBoolean,
  kNames,     // a schema of property names
  kExcluded,  // {} or a boolean: excludes every value or none
  kRefused,
};

struct Keyword {
  std::string_view name;
  Form form;
  TypeSet types;              // types of the values that the keyword concerns
  bool implies_type = false;  // a schema with this keyword and without `type` allows only these
                              // types
};

constexpr TypeSet kAnyNumber = kInteger | kFraction;

// All keywords of any draft that restrict values. Other names are annotations.
constexpr std::array kKeywords = std::to_array<Keyword>({
    {"$defs", Form::kSchemaMap, 0},
    {"definitions", Form::kSchemaMap, 0},
    {"$ref", Form::kString, kAnyType},
    {"type", Form::kType, kAnyType},
    {"nullable", Form::kBoolean, kAnyType},
    {"enum", Form::kEnum, kAnyType},
    {"const", Form::kAnything, kAnyType},
    {"allOf", Form::kSchemaList, kAnyType},
    {"anyOf", Form::kSchemaList, kAnyType},
    {"oneOf", Form::kSchemaList, kAnyType},
    {"properties", Form::kSchemaMap, kObject, true},
    {"required", Form::kStringList, kObject, true},
    {"additionalProperties", Form::kSchema, kObject, true},
    {"propertyNames", Form::kNames, kObject, true},
    {"minProperties", Form::kCount, kObject, true},
    {"maxProperties", Form::kCount, kObject, true},
    {"items", Form::kSchema, kArray, true},
    {"prefixItems", Form::kSchemaList, kArray, true},
    {"minItems", Form::kCount, kArray, true},
    {"maxItems", Form::kCount, kArray, true},
    {"uniqueItems", Form::kBoolean, kArray},
    {"minLength", Form::kCount, kString, true},
    {"maxLength", Form::kCount, kString, true},
    {"pattern", Form::kString, kString, true},
    {"format", Form::kString, kString},
    {"minimum", Form::kNumber, kAnyNumber, true},
    {"maximum", Form::kNumber, kAnyNumber, true},
    {"exclusiveMinimum", Form::kNumber, kAnyNumber, true},
    {"exclusiveMaximum", Form::kNumber, kAnyNumber, true},
    {"multipleOf", Form::kDivisor, kAnyNumber, true},
    {"not", Form::kExcluded, kAnyType},
    {"if", Form::kRefused, kAnyType},
    {"patternProperties", Form::kRefused, kObject},
    {"dependencies", Form::kRefused, kObject},
    {"dependentRequired", Form::kRefused, kObject},
    {"dependentSchemas", Form::kRefused, kObject},
    {"contains", Form::kRefused, kArray},
    {"unevaluatedItems", Form::kRefused, kArray},
    {"unevaluatedProperties", Form::kRefused, kObject},
    {"$recursiveRef", Form::kRefused, kAnyType},
    {"$dynamicRef", Form::kRefused, kAnyType},
});

constexpr std::array kTypes = std::to_array<std::pair<std::string_view, TypeSet>>({
    {"null", kNull},
    {"boolean", kBoolean},
    {"integer", kInteger},
    {"number", kInteger | kFraction},
    {"string", kString},
    {"array", kArray},
    {"object", kObject},
});

TypeSet type_named(const Json& name) {
  if (!name.is_string()) return 0;
  for (const auto& [known, types] : kTypes) {
    if (name == known) return types;
  }
  return 0;
}

// Whether the value is a number, also one wider than 64 bits.
bool is_any_number(const Json& value) {
  return value.is_number() || wide_number_spelling(value).has_value();
}

// The decimal digits of a whole double that does not fit into 64 bits; empty for other values.
std::string whole_digits(const Json& number) {
  if (!number.is_number_float()) return {};
  const double value = number.get<double>();
  return std::abs(value) >= 0x1p63 ? fmt::format("{:.0f}", value) : std::string();
}

bool is_count(const Json& value) {
  const std::optional<Decimal> number = Decimal::of(value);
  return number && number->is_whole() && !number->is_negative();
}

bool is_schema(const Json& value) { return value.is_object() || value.is_boolean(); }

const Keyword* find_keyword(std::string_view name) {
  const auto found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found == kKeywords.end() ? nullptr : &*found;
}

bool is_string_list(const Json& value) {
  return value.is_array() &&
         std::ranges::all_of(value, [](const Json& item) { return item.is_string(); });
}

bool is_schema_of_names(const Json& value) {
  if (!value.is_object()) return value == true;
  return std::ranges::all_of(value.items(), [&value](const auto& item) {
    if (item.key() == "type") return item.value() == "string";
    if (item.key() == "enum") return is_string_list(item.value()) && !item.value().empty();
    return !may_exclude(value, item.key());
  });
}

// Whether a schema allows every value.
bool allows_everything(const Json& schema) {
  if (!schema.is_object()) return schema == true;
  return std::ranges::none_of(schema.items(),
                              [&](const auto& item) { return may_exclude(schema, item.key()); });
}

bool are_all_open(const Json& schemas) {
  return schemas.is_structured() && std::ranges::all_of(schemas, allows_everything);
}

// Whether this member of a schema excludes no value, although its keyword may exclude values.
bool excludes_nothing(const Json& schema, std::string_view keyword, const Json& value) {
  if (keyword == "not") return value == false;
  if (keyword == "if") {
    const bool is_then_open = allows_everything(schema.value("then", Json(true)));
    const bool is_else_open = allows_everything(schema.value("else", Json(true)));
    return (is_then_open || value == false) && (is_else_open || allows_everything(value));
  }
  if (keyword == "additionalProperties" || keyword == "unevaluatedProperties" ||
      keyword == "items" || keyword == "unevaluatedItems") {
    return allows_everything(value);
  }
  if (keyword == "propertyNames") {
    return is_schema_of_names(value) && !(value.is_object() && value.contains("enum"));
  }
  if (keyword == "properties" || keyword == "patternProperties" || keyword == "dependentSchemas") {
    return value.is_object() && are_all_open(value);
  }
  if (keyword == "allOf" || keyword == "prefixItems") {
    return value.is_array() && are_all_open(value);
  }
  if (keyword == "anyOf") {
    return value.is_array() && std::ranges::any_of(value, allows_everything);
  }
  if (keyword == "required") return value.is_array() && value.empty();
  if (keyword == "dependentRequired" || keyword == "dependencies") {
    return value.is_object() && std::ranges::all_of(value, [](const Json& needed) {
             return needed.is_array() ? needed.empty() : allows_everything(needed);
           });
  }
  if (keyword == "contains") {
    const Json least = schema.value("minContains", Json(1));
    return !schema.contains("maxContains") && is_count(least) && count_of(least) == 0;
  }
  if (keyword == "minItems" || keyword == "minLength" || keyword == "minProperties") {
    return is_count(value) && count_of(value) == 0;
  }
  if (keyword == "maxItems" || keyword == "maxLength" || keyword == "maxProperties") {
    // a bound longer than any answer excludes nothing
    return is_count(value) && count_of(value) >= kMaxCount;
  }
  if (keyword == "uniqueItems") return value == false;
  if (keyword == "pattern") return value == "";
  if (keyword == "format") {
    return value.is_string() && pattern_of_format(value.get_ref<const std::string&>()).empty();
  }
  return keyword == "nullable";  // the keyword is handled together with `type`
}

// A description of the form that the value should have; empty if it has it.
std::string_view wrong_form(Form form, const Json& value) {
  switch (form) {
    case Form::kAnything:
    case Form::kRefused:
      return {};
    case Form::kSchema:
      return is_schema(value) ? "" : "a schema (for lists use prefixItems)";
    case Form::kSchemaList:
      return value.is_array() && !value.empty() && std::ranges::all_of(value, is_schema)
                 ? ""
                 : "a list of schemas that is not empty";
    case Form::kSchemaMap:
      return value.is_object() && std::ranges::all_of(value, is_schema) ? ""
                                                                        : "an object of schemas";
    case Form::kCount:
      return is_count(value) ? "" : "an integer of 0 or more";
    case Form::kNumber:
      return is_any_number(value) ? "" : "a number";
    case Form::kString:
      return value.is_string() ? "" : "a string";
    case Form::kStringList:
      return is_string_list(value) ? "" : "a list of strings";
    case Form::kType:
      if (type_named(value) != 0) return "";
      return value.is_array() && !value.empty() &&
                     std::ranges::all_of(value, [](const Json& i) { return type_named(i) != 0; })
                 ? ""
                 : "one of null, boolean, integer, number, string, array, object, or a list of "
                   "them";
    case Form::kEnum:
      return value.is_array() && !value.empty() ? "" : "a list that is not empty";
    case Form::kDivisor:
      return is_count(value) && count_of(value) >= 1 && count_of(value) <= 1000
                 ? ""
                 : "an integer from 1 to 1000; others are not supported";
    case Form::kBoolean:
      return value.is_boolean() ? "" : "true or false";
    case Form::kExcluded:
      return value.is_boolean() || value == Json::object()
                 ? ""
                 : "{} or a boolean; others are not supported";
    case Form::kNames:
      return is_schema_of_names(value)
                 ? ""
                 : R"({"type": "string"}, with an enum or without; nothing else is supported)";
  }
  return {};
}

// Dates with a day that exists in their month; 29 February only in leap years.
#define HEDDLE_DATE                                                                            \
  "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"          \
  "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])" \
  "00)-02-29)"

// The pattern of all texts that have the format, used for listed texts. Free texts are restricted
// to pattern_of_format(), which may allow fewer. Empty: the two patterns are equal.
std::string_view whole_pattern_of_format(std::string_view format) {
#define HEDDLE_ANY_TIME                                               \
  "(([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d|23:59:60)(\\.\\d+)?([Zz]|[+-]" \
  "([01]\\d|2[0-3]):[0-5]\\d)"
#define HEDDLE_LABEL "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
#define HEDDLE_ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
  if (format == "time") return "^" HEDDLE_ANY_TIME "$";
  if (format == "date-time") return "^" HEDDLE_DATE "[Tt]" HEDDLE_ANY_TIME "$";
  if (format == "email") {
    return "^" HEDDLE_ATOM "(\\." HEDDLE_ATOM ")*@" HEDDLE_LABEL "(\\." HEDDLE_LABEL ")*$";
  }
#undef HEDDLE_ANY_TIME
#undef HEDDLE_LABEL
#undef HEDDLE_ATOM
  return {};
}

int64_t num_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t position = 0; position < text.size(); ++count)
    static_cast<void>(next_code_point(text, position));
  return count;
}

// Removes the texts and numbers among the values that violate one keyword.
Status keep_within(std::string_view keyword, const Json& bound, Schemas& values) {
  if (keyword == "minLength" || keyword == "maxLength") {
    std::erase_if(values, [&](const Json* value) {
      if (!value->is_string()) return false;
      const int64_t length = num_characters(value->get_ref<const std::string&>());
      return keyword == "minLength" ? length < count_of(bound) : length > count_of(bound);
    });
    return ok_status();
  }
  if (keyword == "pattern" || keyword == "format") {
    const std::string& text = bound.get_ref<const std::string&>();
    std::string_view wanted = keyword == "format" ? whole_pattern_of_format(text) : text;
    if (wanted.empty() && keyword == "format") wanted = pattern_of_format(text);
    if (wanted.empty() && keyword == "format") return ok_status();  // the format is an annotation
    HEDDLE_ASSIGN_OR_RETURN(const Pattern pattern, Pattern::parse(wanted));
    Nfa nfa;
    const NfaState begin = nfa.add_state();
    const NfaState end = nfa.add_state();
    pattern.add_search(nfa, begin, TextForm::kPlain, end);
    HEDDLE_ASSIGN_OR_RETURN(const ByteDfa texts, ByteDfa::from_nfa(nfa, begin, end));
    std::erase_if(values, [&](const Json* value) {
      return value->is_string() && !texts.contains(value->get_ref<const std::string&>());
    });
    return ok_status();
  }
  const Keyword* const known = find_keyword(keyword);
  if (known == nullptr || known->types != kAnyNumber) return ok_status();
  const std::optional<Decimal> limit = Decimal::of(bound);
  if (!limit) return ok_status();
  std::erase_if(values, [&](const Json* value) {
    const std::optional<Decimal> number = Decimal::of(*value);
    if (!number) return false;
    if (keyword == "multipleOf") return !number->is_multiple_of(static_cast<int>(count_of(bound)));
    const std::strong_ordering order = *number <=> *limit;
    if (keyword == "minimum") return order < 0;
    if (keyword == "maximum") return order > 0;
    return keyword == "exclusiveMinimum" ? order <= 0 : order >= 0;
  });
  return ok_status();
}

}  // namespace

TypeSet types_of_keyword(std::string_view keyword) {
  const Keyword* const known = find_keyword(keyword);
  return known == nullptr ? TypeSet{0} : known->types;
}

bool may_exclude(const Json& schema, std::string_view keyword) {
  if (types_of_keyword(keyword) == 0) return false;
  const auto found = schema.find(keyword);
  return found != schema.end() && !excludes_nothing(schema, keyword, *found);
}

std::vector<KeywordProblem> check_keywords(const Json& schema) {
  std::vector<KeywordProblem> problems;
  for (const auto& [name, value] : schema.items()) {
    const Keyword* const keyword = find_keyword(name);
    if (keyword == nullptr) continue;  // the draft treats it as an annotation (core, 6.5)
    if (keyword->form != Form::kBoolean && excludes_nothing(schema, name, value)) continue;
    if (keyword->form == Form::kRefused) {
      const char* const remedy = name.starts_with("depend") ? "; write the cases with anyOf"
                                 : name.starts_with("$")    ? "; use $ref instead"
                                                            : "; leave it out";
      problems.push_back(
          {.keyword = name,
           .message = fmt::format("the keyword \"{}\" is not supported{}", name, remedy),
           .is_read = false});
    } else if (const std::string_view expected = wrong_form(keyword->form, value);
               !expected.empty()) {
      problems.push_back({.keyword = name,
                          .message = fmt::format("{} must be {}, is {}", name, expected,
                                                 dump_exact_json(value).substr(0, 60))});
    }
  }
  return problems;
}

TypeSet types_of(const Schemas& schemas) {
  TypeSet types = kAnyType;
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    const auto type = schema->find("type");
    if (type == schema->end()) continue;
    TypeSet of_schema = type_named(*type);
    if (type->is_array()) {
      for (const Json& name : *type) of_schema |= type_named(name);
    }
    if (schema->value("nullable", false)) of_schema |= kNull;
    types &= of_schema;
  }
  return types;
}

TypeSet types_of_keywords(const Schemas& schemas) {
  TypeSet types = 0;
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    for (const auto& [name, value] : schema->items()) {
      const Keyword* const keyword = find_keyword(name);
      if (keyword != nullptr && keyword->implies_type) types |= keyword->types;
      if (name == "format" && !pattern_of_format(value.get_ref<const std::string&>()).empty()) {
        types |= kString;
      }
    }
  }
  return types == 0 ? kAnyType : types;
}

std::optional<Schemas> values_of(const Schemas& schemas) {
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    if (const auto value = schema->find("const"); value != schema->end()) return Schemas{&*value};
  }
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    if (const auto values = schema->find("enum"); values != schema->end()) {
      Schemas list;
      for (const Json& value : *values) list.push_back(&value);
      return list;
    }
  }
  return std::nullopt;
}

namespace {

bool is_spelled_as_integer(std::string_view number) {
  return number.find_first_not_of("-0123456789") == std::string_view::npos;
}

}  // namespace

bool equal_values(const Json& left, const Json& right) {
  if (left.is_object() && right.is_object()) {
    return left.size() == right.size() && std::ranges::all_of(left.items(), [&](const auto& item) {
             const auto other = right.find(item.key());
             return other != right.end() && equal_values(item.value(), *other);
           });
  }
  if (left.is_array() && right.is_array()) {
    return std::ranges::equal(left, right, equal_values);
  }
  const auto left_wide = wide_number_spelling(left);
  const auto right_wide = wide_number_spelling(right);
  if (!left_wide && !right_wide) return left == right;
  if (left_wide && right_wide && is_spelled_as_integer(*left_wide) &&
      is_spelled_as_integer(*right_wide)) {
    return *left_wide == *right_wide;  // JSON has only one spelling for these numbers
  }
  if (left_wide && *left_wide == whole_digits(right)) return true;
  if (right_wide && *right_wide == whole_digits(left)) return true;
  return Decimal::of(left) == Decimal::of(right);  // at least one of the two is a number of
                                                   // ordinary width
}

std::optional<KeywordProblem> keep_values_within(const Json& schema, Schemas& values) {
  const auto is_array = [](const Json* value) { return value->is_array(); };
  const auto is_object = [](const Json* value) { return value->is_object(); };
  const TypeSet structured =
      static_cast<TypeSet>((std::ranges::any_of(values, is_array) ? kArray : 0) |
                           (std::ranges::any_of(values, is_object) ? kObject : 0));
  for (const auto& [name, bound] : schema.items()) {
    const TypeSet types = types_of_keyword(name);
    if (types != kAnyType && (types & structured) != 0 && may_exclude(schema, name)) {
      return KeywordProblem{
          name, "cannot be combined with lists and objects in enum or const; leave it out"};
    }
    if (const Status status = keep_within(name, bound, values); !status.ok()) {
      return KeywordProblem{name, status.message()};
    }
  }
  return std::nullopt;
}

bool are_values_valid(const Schemas& schemas, const Json& value) {
  TypeSet type = kObject;
  if (value.is_null()) type = kNull;
  if (value.is_boolean()) type = kBoolean;
  if (value.is_string()) type = kString;
  if (value.is_array()) type = kArray;
  if (const std::optional<Decimal> number = Decimal::of(value)) {
    type = number->is_whole() ? kInteger : kFraction;
  }
  if ((types_of(schemas) & type) == 0) return false;
  return std::ranges::all_of(schemas, [&](const Json* schema) {
    if (!schema->is_object()) return true;
    const auto only = schema->find("const");
    if (only != schema->end() && !equal_values(*only, value)) return false;
    const auto values = schema->find("enum");
    return values == schema->end() || std::ranges::any_of(*values, [&](const Json& other) {
             return equal_values(other, value);
           });
  });
}

std::optional<Schemas> valid_values(const Schemas& schemas, const Json*& at,
                                    std::optional<KeywordProblem>& problem) {
  std::optional<Schemas> values = values_of(schemas);
  if (!values) return std::nullopt;
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    problem = keep_values_within(*schema, *values);
    at = schema;
    if (problem) return Schemas{};
  }
  std::erase_if(*values, [&](const Json* value) { return !are_values_valid(schemas, *value); });
  return values;
}

std::vector<std::string> required_of(const Schemas& schemas) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    const auto required = schema->find("required");
    if (required == schema->end()) continue;
    for (const Json& name : *required) {
      if (known.insert(name.get<std::string>()).second) names.push_back(name.get<std::string>());
    }
  }
  return names;
}

std::optional<Schemas> names_of(const Json& schema) {
  const auto names = schema.find("propertyNames");
  if (names == schema.end() || !names->contains("enum")) return std::nullopt;
  return values_of({&*names});
}

Property property_of(const Schemas& schemas, const std::string& name) {
  Property property;
  for (const Json* schema : schemas) {
    if (!schema->is_object()) continue;
    const std::optional<Schemas> names = names_of(*schema);
    if (names && std::ranges::none_of(*names, [&](const Json* known) { return *known == name; })) {
      property.is_forbidden = true;
    }
    const Json* part = nullptr;
    if (const auto properties = schema->find("properties"); properties != schema->end()) {
      if (const auto found = properties->find(name); found != properties->end()) part = &*found;
    }
    if (part == nullptr) {
      const auto additional = schema->find("additionalProperties");
      if (additional != schema->end()) part = &*additional;
    }
    if (part == nullptr) continue;
    if (*part == false) property.is_forbidden = true;
    property.schemas.push_back(part);
  }
  return property;
}

int64_t count_of(const Json& value) {
  constexpr int64_t kMost = INT64_MAX / 2;
  if (value.is_number_float()) {
    const auto count = value.get<double>();
    return count < static_cast<double>(kMost) ? static_cast<int64_t>(count) : kMost;
  }
  if (value.is_number_unsigned()) {
    return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), kMost));
  }
  return value.is_number() ? value.get<int64_t>() : kMost;  // a number wider than 64 bits
}

std::string_view pattern_of_format(std::string_view format) {
#define HEDDLE_TIME \
  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
  if (format == "date") return "^" HEDDLE_DATE "$";
  if (format == "time") return "^" HEDDLE_TIME "$";
  if (format == "date-time") return "^" HEDDLE_DATE "T" HEDDLE_TIME "$";
#undef HEDDLE_DATE
#undef HEDDLE_TIME
  if (format == "email") {
    return "^[a-z0-9_+-]{1,32}(\\.[a-z0-9_+-]{1,32}){0,3}@[a-z0-9]{1,32}(-[a-z0-9]{1,32})?"
           "(\\.[a-z]{2,24}){1,3}$";
  }
  if (format == "uuid") {
    return "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";
  }
  if (format == "ipv4") {
    return "^(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3}$";
  }
  return {};
}

}  // namespace heddle::grammar
