// SPDX-License-Identifier: Apache-2.0
// OpenApiSchema: OpenAI's description of its own API, to hold our answers to. Checks the keywords
// that its responses use: type, nullable, properties, required, additionalProperties, items, enum,
// anyOf, oneOf (as anyOf), allOf, $ref, minimum, maximum and lengths. Formats and patterns are not
// checked.
//
// Threading: thread-compatible.
#pragma once

#include <istream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::server {

class OpenApiSchema {
 public:
  // `file` has the description as JSON.
  static OpenApiSchema parse(std::istream& file) {
    return OpenApiSchema(std::move(Json::parse(file)["components"]["schemas"]));
  }

  // The first thing that is wrong with `value` as a `schema_name`, "" when nothing is.
  [[nodiscard]] std::string check(std::string_view schema_name,
                                  const nlohmann::ordered_json& value) const {
    return check(schemas_.at(std::string(schema_name)), Json::parse(value.dump()),
                 std::string(schema_name));
  }

 private:
  using Json = nlohmann::json;

  explicit OpenApiSchema(Json schemas) : schemas_(std::move(schemas)) {}

  static bool has_type(const Json& value, std::string_view type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    return type == "object" && value.is_object();
  }

  [[nodiscard]] std::string check(const Json& schema, const Json& value,
                                  const std::string& where) const {
    if (!schema.is_object()) return {};
    if (value.is_null() && schema.value("nullable", false)) return {};
    if (schema.contains("$ref")) {
      const std::string reference = schema["$ref"];
      return check(schemas_.at(reference.substr(reference.rfind('/') + 1)), value, where);
    }
    if (schema.contains("type")) {
      bool fits = false;
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      for (const Json& type : types) fits = fits || has_type(value, type.get<std::string>());
      if (!fits)
        return fmt::format("{} is {:.60}, not of type {}", where, value.dump(), types.dump());
    }
    if (schema.contains("enum")) {
      bool found = false;
      for (const Json& known : schema["enum"]) found = found || known == value;
      if (!found) return fmt::format("{} is {}, none of the enum", where, value.dump());
    }
    for (const char* const choice : {"anyOf", "oneOf"}) {
      if (!schema.contains(choice)) continue;
      std::string errors;
      bool found = false;
      for (const Json& alternative : schema[choice]) {
        const std::string error = check(alternative, value, where);
        found = found || error.empty();
        errors += "\n  | " + error;
      }
      if (!found) return fmt::format("{} fits none of {}:{}", where, choice, errors);
    }
    if (schema.contains("allOf")) {
      for (const Json& part : schema["allOf"]) {
        if (std::string error = check(part, value, where); !error.empty()) return error;
      }
    }
    if (value.is_object()) return check_object(schema, value, where);
    if (value.is_array()) return check_array(schema, value, where);
    return check_size(schema, value, where);
  }

  [[nodiscard]] std::string check_object(const Json& schema, const Json& value,
                                         const std::string& where) const {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) {
        return fmt::format("{} lacks {}", where, name.get<std::string>());
      }
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, entry] : value.items()) {
      const std::string inner = where + "." + name;
      const Json* rule = nullptr;
      if (properties.contains(name)) {
        rule = &properties[name];
      } else if (schema.contains("additionalProperties") &&
                 schema["additionalProperties"].is_object()) {
        rule = &schema["additionalProperties"];
      }
      if (rule == nullptr) continue;  // our extensions
      if (std::string error = check(*rule, entry, inner); !error.empty()) return error;
    }
    return {};
  }

  [[nodiscard]] std::string check_array(const Json& schema, const Json& value,
                                        const std::string& where) const {
    if (value.size() < schema.value("minItems", size_t{0})) return where + " has too few items";
    if (value.size() > schema.value("maxItems", value.size())) return where + " has too many items";
    if (!schema.contains("items")) return {};
    for (size_t i = 0; i < value.size(); ++i) {
      std::string error = check(schema["items"], value[i], fmt::format("{}[{}]", where, i));
      if (!error.empty()) return error;
    }
    return {};
  }

  static std::string check_size(const Json& schema, const Json& value, const std::string& where) {
    if (value.is_number()) {
      const double number = value;
      if (number < schema.value("minimum", number) || number > schema.value("maximum", number)) {
        return fmt::format("{} is {}, out of its range", where, value.dump());
      }
    }
    if (value.is_string()) {
      const size_t length = value.get_ref<const std::string&>().size();
      if (length < schema.value("minLength", size_t{0}) ||
          length > schema.value("maxLength", length)) {
        return fmt::format("{} has a length of {}", where, length);
      }
    }
    return {};
  }

  Json schemas_;
};

}  // namespace heddle::server
