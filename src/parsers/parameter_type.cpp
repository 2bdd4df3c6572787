// SPDX-License-Identifier: Apache-2.0
#include "parsers/parameter_type.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "parsers/json_scanner.h"
#include "parsers/python_literal.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxUnionDepth = 8;  // anyOf within anyOf
constexpr size_t kMaxKinds = 16;

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

const Json* properties_of(const Json& tools, std::string_view tool) {
  if (!tools.is_array()) return nullptr;
  for (const Json& entry : tools) {
    const Json* const function = member(entry, "function");
    const Json* const name = function != nullptr ? member(*function, "name") : nullptr;
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>() != tool) {
      continue;
    }
    const Json* const parameters = member(*function, "parameters");
    return parameters != nullptr ? member(*parameters, "properties") : nullptr;
  }
  return nullptr;
}

std::string quoted(std::string_view text) {
  std::string json = "\"";
  append_escaped(text, json);
  json += '"';
  return json;
}

// Digits with a sign, as JSON spells them: without a plus and leading zeros.
std::optional<std::string> integer_json(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  return (negative ? "-" : "") + std::string(text);
}

std::optional<std::string> number_json(std::string_view text) {
  if (auto integer = integer_json(text)) return integer;
  const bool looks_so =
      !text.empty() && text.find_first_not_of("+-.0123456789eE") == std::string_view::npos;
  if (!looks_so) return std::nullopt;
  if (is_json(text)) return std::string(text);
  if (text.starts_with('+')) text.remove_prefix(1);  // ".5", "5.", "+5.0"
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return Json(value).dump();
}

std::optional<std::string> structure_json(std::string_view text) {
  if (is_json(text)) return std::string(text);
  return python_literal_to_json(text);
}

}  // namespace

ParameterType ParameterType::of(const Json& tools, std::string_view tool,
                                std::string_view parameter) {
  ParameterType type;
  const Json* const properties = properties_of(tools, tool);
  const Json* const schema = properties != nullptr ? member(*properties, parameter) : nullptr;
  if (schema != nullptr) type.add(*schema, 0);
  return type;
}

ParameterType ParameterType::json() {
  ParameterType type;
  type.kinds_ = {Kind::kStructure};
  return type;
}

ParameterType ParameterType::text() {
  ParameterType type;
  type.may_be_null_ = false;
  return type;
}

void ParameterType::add(const Json& schema, int depth) {
  if (depth > kMaxUnionDepth || kinds_.size() >= kMaxKinds) return;
  if (const Json* const type = member(schema, "type")) {
    if (type->is_string()) add_name(type->get_ref<const std::string&>());
    if (type->is_array()) {
      for (const Json& name : *type) {
        if (name.is_string()) add_name(name.get_ref<const std::string&>());
      }
    }
    return;
  }
  for (const char* const name : {"anyOf", "oneOf"}) {
    const Json* const members = member(schema, name);
    if (members == nullptr || !members->is_array()) continue;
    for (const Json& one : *members) add(one, depth + 1);
    return;
  }
  if (member(schema, "properties") != nullptr || member(schema, "items") != nullptr) {
    kinds_.push_back(Kind::kStructure);
  }
}

void ParameterType::add_name(std::string_view name) {
  if (kinds_.size() >= kMaxKinds) return;
  const std::string word = lower(name);
  const auto begins = [&word](std::initializer_list<std::string_view> starts) {
    return std::any_of(starts.begin(), starts.end(),
                       [&word](std::string_view start) { return word.starts_with(start); });
  };
  if (begins({"int", "uint", "long", "short", "unsigned"})) {
    kinds_.push_back(Kind::kInteger);
  } else if (begins({"num", "float", "double"})) {
    kinds_.push_back(Kind::kNumber);
  } else if (word == "boolean" || word == "bool" || word == "binary") {
    kinds_.push_back(Kind::kBoolean);
  } else if (begins({"object", "array", "dict", "list"})) {
    kinds_.push_back(Kind::kStructure);
  } else if (word != "null") {
    kinds_.push_back(Kind::kString);
  }
}

std::string ParameterType::to_json(std::string_view text) const {
  const std::string_view value = trimmed(text);
  if (may_be_null_ && is_null_word(value)) return "null";
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
        json = number_json(value);
        break;
      case Kind::kBoolean:
        // Of several types it is this one only if it says so.
        if (kinds_.size() == 1 || lower(value) == "true" || lower(value) == "false") {
          json = lower(value) == "true" ? "true" : "false";
        }
        break;
      case Kind::kStructure:
        json = structure_json(value);
        break;
    }
    if (json) return *std::move(json);
  }
  return quoted(text);
}

bool is_null_word(std::string_view text) { return lower(text.substr(0, 5)) == "null"; }

bool may_become_null_word(std::string_view text) {
  return text.size() <= 4 && std::string_view("null").starts_with(lower(text));
}

}  // namespace heddle::parsers
