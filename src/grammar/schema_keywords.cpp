// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"
#include "grammar/number_range.h"
#include "grammar/pattern.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

enum class Form : uint8_t {
  kAnnotation,  // anything
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
  kExcluded,  // {} or a boolean, which nothing or everything satisfies
  kRefused,
};

struct Keyword {
  std::string_view name;
  Form form;
  TypeSet types = 0;  // it speaks of
};

constexpr std::array kKeywords = std::to_array<Keyword>({
    {"$defs", Form::kSchemaMap},
    {"definitions", Form::kSchemaMap},
    {"$ref", Form::kString},
    {"type", Form::kType},
    {"nullable", Form::kBoolean},
    {"enum", Form::kEnum},
    {"const", Form::kAnnotation},
    {"allOf", Form::kSchemaList},
    {"anyOf", Form::kSchemaList},
    {"oneOf", Form::kSchemaList},
    {"properties", Form::kSchemaMap, kObject},
    {"required", Form::kStringList, kObject},
    {"additionalProperties", Form::kSchema, kObject},
    {"propertyNames", Form::kNames, kObject},
    {"minProperties", Form::kCount, kObject},
    {"maxProperties", Form::kCount, kObject},
    {"items", Form::kSchema, kArray},
    {"prefixItems", Form::kSchemaList, kArray},
    {"minItems", Form::kCount, kArray},
    {"maxItems", Form::kCount, kArray},
    {"uniqueItems", Form::kBoolean},
    {"minLength", Form::kCount, kString},
    {"maxLength", Form::kCount, kString},
    {"pattern", Form::kString, kString},
    {"format", Form::kString},
    {"minimum", Form::kNumber, kInteger | kFraction},
    {"maximum", Form::kNumber, kInteger | kFraction},
    {"exclusiveMinimum", Form::kNumber, kInteger | kFraction},
    {"exclusiveMaximum", Form::kNumber, kInteger | kFraction},
    {"multipleOf", Form::kDivisor, kInteger | kFraction},
    {"not", Form::kExcluded},
    {"if", Form::kRefused},
    {"patternProperties", Form::kRefused},
    {"dependencies", Form::kRefused},
    {"dependentRequired", Form::kRefused},
    {"dependentSchemas", Form::kRefused},
    {"contains", Form::kRefused},
    {"unevaluatedItems", Form::kRefused},
    {"unevaluatedProperties", Form::kRefused},
    {"$recursiveRef", Form::kRefused},
    {"$dynamicRef", Form::kRefused},
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

bool is_count(const Json& value) {
  if (value.is_number_unsigned()) return true;
  if (value.is_number_integer()) return value.get<int64_t>() >= 0;
  return value.is_number_float() && value.get<double>() >= 0 && value.get<double>() < 1e15 &&
         value.get<double>() == static_cast<double>(static_cast<int64_t>(value.get<double>()));
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
  return std::ranges::all_of(value.items(), [](const auto& item) {
    if (item.key() == "type") return item.value() == "string";
    if (item.key() == "enum") return is_string_list(item.value()) && !item.value().empty();
    const Keyword* const keyword = find_keyword(item.key());
    return keyword == nullptr || (keyword->form == Form::kAnnotation && item.key() != "const");
  });
}

// The form that a value should have had; empty when it has it.
std::string_view wrong_form(Form form, const Json& value) {
  switch (form) {
    case Form::kAnnotation:
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
      return value.is_number() ? "" : "a number";
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

int64_t num_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t position = 0; position < text.size(); ++count)
    static_cast<void>(next_code_point(text, position));
  return count;
}

// Leaves those texts and numbers among the values that satisfy one keyword.
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
    const std::string_view wanted = keyword == "format" ? pattern_of_format(text) : text;
    if (wanted.empty() && keyword == "format") return ok_status();  // an annotation
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
  if (known == nullptr || (known->types & kInteger) == 0) return ok_status();
  HEDDLE_ASSIGN_OR_RETURN(const Nanos limit, nanos_of(bound));
  Schemas kept;
  for (const Json* value : values) {
    bool fits = true;
    if (value->is_number()) {
      HEDDLE_ASSIGN_OR_RETURN(const Nanos number, nanos_of(*value));
      const Nanos most = kMaxInteger * kNanosPerUnit;  // beyond, nanos_of() cannot compare
      fits = -most <= number && number <= most;
      if (keyword == "minimum") fits = fits && number >= limit;
      if (keyword == "maximum") fits = fits && number <= limit;
      if (keyword == "exclusiveMinimum") fits = fits && number > limit;
      if (keyword == "exclusiveMaximum") fits = fits && number < limit;
      if (keyword == "multipleOf") fits = fits && number % limit == 0;
    }
    if (fits) kept.push_back(value);
  }
  values = std::move(kept);
  return ok_status();
}

}  // namespace

std::optional<KeywordProblem> check_keywords(const Json& schema) {
  for (const auto& [name, value] : schema.items()) {
    const Keyword* const keyword = find_keyword(name);
    if (keyword == nullptr) continue;  // an annotation, as the draft has it (core, 6.5)
    if (keyword->form == Form::kRefused) {
      const char* const remedy = name.starts_with("depend") ? "; write the cases with anyOf"
                                 : name.starts_with("$")    ? "; use $ref instead"
                                                            : "; leave it out";
      return KeywordProblem{name,
                            fmt::format("the keyword \"{}\" is not supported{}", name, remedy)};
    }
    if (const std::string_view expected = wrong_form(keyword->form, value); !expected.empty()) {
      return KeywordProblem{
          name,
          fmt::format("{} must be {}, is {}", name, expected,
                      value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60))};
    }
  }
  return std::nullopt;
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
      if (const Keyword* keyword = find_keyword(name)) types |= keyword->types;
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
  return left == right;
}

std::optional<KeywordProblem> keep_values_within(const Json& schema, Schemas& values) {
  const auto is_array = [](const Json* value) { return value->is_array(); };
  const auto is_object = [](const Json* value) { return value->is_object(); };
  const TypeSet structured =
      static_cast<TypeSet>((std::ranges::any_of(values, is_array) ? kArray : 0) |
                           (std::ranges::any_of(values, is_object) ? kObject : 0));
  for (const auto& [name, bound] : schema.items()) {
    const Keyword* const keyword = find_keyword(name);
    if (keyword == nullptr) continue;
    const bool is_unique = name == "uniqueItems" && bound == true && (structured & kArray) != 0;
    if ((keyword->types & structured) != 0 || is_unique) {
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
  if (value.is_number()) {
    const bool is_whole =
        !value.is_number_float() ||
        value.get<double>() ==
            static_cast<double>(static_cast<int64_t>(std::clamp(value.get<double>(), -1e18, 1e18)));
    type = is_whole ? kInteger : kFraction;
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
  if (value.is_number_float()) return static_cast<int64_t>(value.get<double>());
  if (value.is_number_unsigned()) {
    return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX / 2));
  }
  return value.get<int64_t>();
}

std::string_view pattern_of_format(std::string_view format) {
// Days of the months, and 29 February in the years that have one.
#define HEDDLE_DATE                                                                            \
  "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"          \
  "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])" \
  "00)-02-29)"
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

std::optional<std::string> pointer_step(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || digits.size() < 2 || end != digits.data() + 2) return std::nullopt;
    bytes += static_cast<char>(value);
    i += 2;
  }
  std::string step;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '~') {
      step += bytes[i];
    } else if (i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1')) {
      step += bytes[++i] == '0' ? '~' : '/';
    } else {
      return std::nullopt;
    }
  }
  return step;
}

std::optional<size_t> list_index(std::string_view text) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return index;
}

}  // namespace heddle::grammar
