// SPDX-License-Identifier: Apache-2.0
// A simple validator of JSON Schema, for tests: recursion over documents, without automata. It
// supports the keywords that grammars enforce, and shares no code with the grammars.
#pragma once

#include <cmath>
#include <cstdint>
#include <regex>
#include <string>

#include <nlohmann/json.hpp>

namespace heddle::grammar::testing {
using Json = nlohmann::ordered_json;

// Whether `document` satisfies `schema`, a part of `root`.
inline bool is_valid(const Json& document, const Json& schema, const Json& root);

inline bool is_integer(const Json& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::floor(value.get<double>()) == value.get<double>();
}

inline bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return is_integer(value);
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

inline bool equal(const Json& left, const Json& right) {
  if (left.is_object() && right.is_object()) {
    if (left.size() != right.size()) return false;
    for (const auto& [key, value] : left.items()) {
      if (!right.contains(key) || !equal(value, right[key])) return false;
    }
    return true;
  }
  if (left.is_array() && right.is_array()) {
    if (left.size() != right.size()) return false;
    for (size_t i = 0; i < left.size(); ++i) {
      if (!equal(left[i], right[i])) return false;
    }
    return true;
  }
  return left == right;
}

inline size_t num_characters(const std::string& text) {
  size_t count = 0;
  for (const char letter : text) {
    if ((static_cast<unsigned char>(letter) & 0xC0) != 0x80) ++count;
  }
  return count;
}

inline const Json* resolve(const std::string& reference, const Json& root) {
  const Json* at = &root;
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    std::string step;
    for (size_t i = begin; i < end; ++i) {
      if (reference[i] == '%') {
        step += static_cast<char>(std::stoi(reference.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else if (reference[i] == '~') {
        step += reference[++i] == '0' ? '~' : '/';
      } else {
        step += reference[i];
      }
    }
    at = at->is_array() ? &at->at(std::stoul(step)) : &at->at(step);
    begin = end + 1;
  }
  return at;
}

inline bool numbers_fit(const Json& value, const Json& schema) {
  const auto number = value.get<long double>();
  const auto bound = [&](const char* name) { return schema[name].get<long double>(); };
  if (schema.contains("minimum") && number < bound("minimum")) return false;
  if (schema.contains("maximum") && number > bound("maximum")) return false;
  if (schema.contains("exclusiveMinimum") && number <= bound("exclusiveMinimum")) return false;
  if (schema.contains("exclusiveMaximum") && number >= bound("exclusiveMaximum")) return false;
  return !schema.contains("multipleOf") || std::fmod(number, bound("multipleOf")) == 0;
}

// The formats that grammars enforce; others are annotations.
inline bool has_format(const std::string& text, const std::string& format) {
  const auto is = [&](const char* pattern) { return std::regex_match(text, std::regex(pattern)); };
  const auto number = [&](size_t begin, size_t size) {
    return std::stoi(text.substr(begin, size));
  };
  const auto is_date = [&](const std::string& date) {
    if (!std::regex_match(date, std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}"))) return false;
    const int year = number(0, 4);
    const int month = number(5, 2);
    const bool leaps = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    const int days[] = {31, leaps ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month >= 1 && month <= 12 && number(8, 2) >= 1 && number(8, 2) <= days[month - 1];
  };
  const std::string time =
      "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]|23:59:60)(\\.[0-9]+)?"
      "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
  if (format == "date") return is_date(text);
  if (format == "time") return is(time.c_str());
  if (format == "date-time") {
    return text.size() > 11 && (text[10] == 'T' || text[10] == 't') &&
           is_date(text.substr(0, 10)) && std::regex_match(text.substr(11), std::regex(time));
  }
  if (format == "email") return is("[^@\\s]+@[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?");
  if (format == "uuid") return is("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
  if (format == "ipv4") {
    return is("((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\\.|$)){4}") && text.back() != '.';
  }
  return true;
}

inline bool string_fits(const std::string& text, const Json& schema) {
  const size_t length = num_characters(text);
  if (schema.contains("minLength") &&
      static_cast<double>(length) < schema["minLength"].get<double>())
    return false;
  if (schema.contains("maxLength") &&
      static_cast<double>(length) > schema["maxLength"].get<double>())
    return false;
  if (schema.contains("format") && !has_format(text, schema["format"].get<std::string>())) {
    return false;
  }
  if (!schema.contains("pattern")) return true;
  // Compares wide characters, because a pattern's unit is the character, not the byte.
  const auto widen = [](const std::string& bytes) {
    std::wstring wide;
    for (size_t i = 0; i < bytes.size();) {
      const auto first = static_cast<unsigned char>(bytes[i]);
      const size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
      uint32_t code = size == 1 ? first : first & (0x7Fu >> size);
      for (size_t j = 1; j < size; ++j) {
        code = (code << 6) | (static_cast<unsigned char>(bytes.at(i + j)) & 0x3Fu);
      }
      wide += static_cast<wchar_t>(code);
      i += size;
    }
    return wide;
  };
  return std::regex_search(widen(text), std::wregex(widen(schema["pattern"].get<std::string>())));
}

inline bool array_fits(const Json& document, const Json& schema, const Json& root) {
  if (schema.contains("minItems") &&
      static_cast<double>(document.size()) < schema["minItems"].get<double>())
    return false;
  if (schema.contains("maxItems") &&
      static_cast<double>(document.size()) > schema["maxItems"].get<double>())
    return false;
  for (size_t i = 0; schema.value("uniqueItems", false) && i < document.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (equal(document[i], document[j])) return false;
    }
  }
  const size_t num_prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
  for (size_t i = 0; i < document.size(); ++i) {
    if (i < num_prefix) {
      if (!is_valid(document[i], schema["prefixItems"][i], root)) return false;
    } else if (schema.contains("items") && !is_valid(document[i], schema["items"], root)) {
      return false;
    }
  }
  return true;
}

inline bool object_fits(const Json& document, const Json& schema, const Json& root) {
  if (schema.contains("minProperties") &&
      static_cast<double>(document.size()) < schema["minProperties"].get<double>()) {
    return false;
  }
  if (schema.contains("maxProperties") &&
      static_cast<double>(document.size()) > schema["maxProperties"].get<double>()) {
    return false;
  }
  if (schema.contains("required")) {
    for (const Json& name : schema["required"]) {
      if (!document.contains(name.get<std::string>())) return false;
    }
  }
  for (const auto& [name, value] : document.items()) {
    if (schema.contains("propertyNames") && !is_valid(name, schema["propertyNames"], root)) {
      return false;
    }
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      if (!is_valid(value, schema["properties"][name], root)) return false;
    } else if (schema.contains("additionalProperties") &&
               !is_valid(value, schema["additionalProperties"], root)) {
      return false;
    }
  }
  return true;
}

inline bool is_valid(const Json& document, const Json& schema, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) {
    const auto reference = schema["$ref"].get<std::string>();
    if (!is_valid(document, reference == "#" ? root : *resolve(reference, root), root))
      return false;
  }
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    bool fits = type.is_string() && has_type(document, type.get<std::string>());
    if (type.is_array()) {
      for (const Json& name : type) fits = fits || has_type(document, name.get<std::string>());
    }
    fits = fits || (document.is_null() && schema.value("nullable", false));
    if (!fits) return false;
  }
  if (schema.contains("const") && !equal(schema["const"], document)) return false;
  if (schema.contains("enum")) {
    bool is_listed = false;
    for (const Json& value : schema["enum"]) is_listed = is_listed || equal(value, document);
    if (!is_listed) return false;
  }
  const auto num_valid = [&](const char* keyword) {
    size_t count = 0;
    for (const Json& branch : schema[keyword]) count += is_valid(document, branch, root) ? 1 : 0;
    return count;
  };
  if (schema.contains("not") && is_valid(document, schema["not"], root)) return false;
  if (schema.contains("allOf") && num_valid("allOf") != schema["allOf"].size()) return false;
  if (schema.contains("anyOf") && num_valid("anyOf") == 0) return false;
  if (schema.contains("oneOf") && num_valid("oneOf") != 1) return false;
  if (document.is_number()) return numbers_fit(document, schema);
  if (document.is_string()) return string_fits(document.get<std::string>(), schema);
  if (document.is_array()) return array_fits(document, schema, root);
  if (document.is_object()) return object_fits(document, schema, root);
  return true;
}

}  // namespace heddle::grammar::testing
