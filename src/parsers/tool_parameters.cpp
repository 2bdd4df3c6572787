// SPDX-License-Identifier: Apache-2.0
#include "parsers/tool_parameters.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "core/exact_json.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_references.h"
#include "parsers/parameter_type.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxChain = 64;  // most `$ref` and allOf in a chain at the root

// The keywords about an object that ToolParameters reads. Other keywords restrict the object as a
// whole, which no schema of a single property can express.
constexpr std::array<std::string_view, 7> kReadKeywords = {
    "$ref", "allOf", "type", "nullable", "properties", "required", "additionalProperties"};

bool restricts_whole_object(const Json& schema, std::string_view keyword) {
  return std::ranges::find(kReadKeywords, keyword) == kReadKeywords.end() &&
         (grammar::types_of_keyword(keyword) & grammar::kObject) != 0 &&
         grammar::may_exclude(schema, keyword);
}

const Json* member_of(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

bool may_be_object(const Json& type) {
  return type == "object" ||
         (type.is_array() && std::ranges::find(type, Json("object")) != type.end());
}

bool holds_values(std::string_view keyword) {
  return keyword == "const" || keyword == "enum" || keyword == "default" || keyword == "example" ||
         keyword == "examples";
}

bool maps_names_to_schemas(std::string_view keyword) {
  return keyword == "properties" || keyword == "$defs" || keyword == "definitions" ||
         keyword == "patternProperties" || keyword == "dependentSchemas";
}

// Calls `visit` with the text of every reference in `schema` that refers into the document; Schema
// is Json or const Json. Values such as enum and const contain no references.
template <typename Schema, typename Visit>
void for_each_reference(Schema& schema, const Visit& visit) {
  if (schema.is_array()) {
    for (auto& item : schema) for_each_reference(item, visit);
    return;
  }
  if (!schema.is_object()) return;
  for (auto it = schema.begin(); it != schema.end(); ++it) {
    auto& value = it.value();
    if (it.key() == "$ref" && value.is_string()) {
      auto& reference = value.template get_ref<
          std::conditional_t<std::is_const_v<Schema>, const std::string&, std::string&>>();
      if (reference == "#" || reference.starts_with("#/")) visit(reference);
    } else if (maps_names_to_schemas(it.key()) && value.is_object()) {
      for (auto& inner : value) for_each_reference(inner, visit);
    } else if (!holds_values(it.key())) {
      for_each_reference(value, visit);
    }
  }
}

std::string step_of(std::string_view text) {
  return grammar::pointer_step(text).value_or(std::string());
}

// The parts of the root that a schema's references reach, directly or indirectly.
struct ReachedParts {
  bool is_any_reached = false;
  bool is_root_reached = false;
  bool are_all_definitions = true;
  // By member of the root. A part is one entry of the member; nullopt: the whole member.
  std::map<std::string, std::set<std::optional<std::string>>> parts;
};

ReachedParts parts_reached_from(const Json& schema, const Json& root) {
  ReachedParts reached;
  std::vector<const Json*> unread = {&schema};
  const auto visit = [&](const std::string& reference) {
    reached.is_any_reached = true;
    if (reached.is_root_reached) return;
    if (reference == "#") {
      reached.is_root_reached = true;
      return;
    }
    const size_t end = std::min(reference.find('/', 2), reference.size());
    const std::string outer = step_of(std::string_view(reference).substr(2, end - 2));
    const bool is_definition = outer == "$defs" || outer == "definitions";
    if (!is_definition) reached.are_all_definitions = false;
    std::optional<std::string> inner;
    const Json* part = member_of(root, outer);
    if (part == nullptr) return;
    if (end < reference.size() && part->is_object()) {
      const size_t inner_end = std::min(reference.find('/', end + 1), reference.size());
      inner = step_of(std::string_view(reference).substr(end + 1, inner_end - end - 1));
      part = member_of(*part, *inner);
      if (part == nullptr) return;
    }
    if (reached.parts[outer].insert(inner).second) unread.push_back(part);
  };
  while (!unread.empty() && !reached.is_root_reached) {
    const Json* const next = unread.back();
    unread.pop_back();
    for_each_reference(*next, visit);
  }
  return reached;
}

Json copy_of(const ReachedParts& reached, const Json& root) {
  if (reached.is_root_reached) return root;
  Json copy = Json::object();
  for (const auto& [outer, inners] : reached.parts) {
    const Json& from = root[outer];
    if (inners.contains(std::nullopt)) {
      copy[outer] = from;
      continue;
    }
    for (const auto& inner : inners) copy[outer][*inner] = from[*inner];
  }
  return copy;
}

}  // namespace

ToolParameters::ToolParameters(const Json& root) : root_(root) {
  Schemas chain;
  add_part(root, chain);
  merge_properties();
  merge_required();
  check_additional_properties();
}

void ToolParameters::set_problem(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

void ToolParameters::add_part(const Json& part, Schemas& chain) {
  if (part == true) return;
  if (!part.is_object()) return set_problem("`allOf` at the root has an entry that is no schema");
  if (chain.size() >= kMaxChain || std::ranges::find(chain, &part) != chain.end()) {
    return set_problem("`$ref` at the root leads back to itself");
  }
  if (std::ranges::find(parts_, &part) != parts_.end()) return;
  const Json* const type = member_of(part, "type");
  if (type != nullptr && !may_be_object(*type)) {
    return set_problem("`type` of a schema at the root is not \"object\"");
  }
  parts_.push_back(&part);
  chain.push_back(&part);
  for (const auto& [keyword, value] : part.items()) {
    if (restricts_whole_object(part, keyword)) {
      set_problem(fmt::format("`{}` at the root", keyword));
    }
  }
  if (const Json* const reference = member_of(part, "$ref")) {
    const std::string* const text = reference->get_ptr<const std::string*>();
    if (const Json* const target = text == nullptr ? nullptr : grammar::part_at(root_, *text)) {
      add_part(*target, chain);
    } else {
      set_problem("`$ref` at the root leads nowhere");
    }
  }
  if (const Json* const all = member_of(part, "allOf")) {
    if (!all->is_array()) set_problem("`allOf` at the root is not a list");
    if (all->is_array()) {
      for (const Json& branch : *all) add_part(branch, chain);
    }
  }
  chain.pop_back();
}

void ToolParameters::merge_properties() {
  std::map<std::string_view, const Json*> known;
  for (const Json* const part : parts_) {
    const Json* const listed = member_of(*part, "properties");
    if (listed == nullptr) continue;
    if (!listed->is_object()) {
      set_problem("`properties` is not an object");
      continue;
    }
    has_properties_ = true;
    for (auto it = listed->begin(); it != listed->end(); ++it) {
      const auto [at, is_new] = known.emplace(it.key(), &it.value());
      if (is_new) {
        properties_.emplace_back(it.key(), &it.value());
      } else if (*at->second != it.value()) {
        set_problem(
            fmt::format("`{}` at the root gives `{}` another schema",
                        std::ranges::any_of(
                            parts_, [](const Json* schema) { return schema->contains("allOf"); })
                            ? "allOf"
                            : "$ref",
                        it.key()));
      }
    }
  }
}

void ToolParameters::merge_required() {
  std::set<std::string_view> names;
  for (const auto& [name, schema] : properties_) names.insert(name);
  for (const Json* const part : parts_) {
    const Json* const required = member_of(*part, "required");
    if (required == nullptr) continue;
    if (!required->is_array()) {
      set_problem("`required` is not a list");
      continue;
    }
    for (const Json& name : *required) {
      if (!name.is_string()) {
        set_problem("`required` has an entry that is not a string");
      } else if (names.contains(name.get_ref<const std::string&>())) {
        required_.insert(name.get<std::string>());
      } else {
        set_problem(fmt::format("`required` names `{}`, which is not in `properties`",
                                name.get_ref<const std::string&>()));
      }
    }
  }
}

// A schema that restricts additional properties also restricts those that only another schema
// lists.
void ToolParameters::check_additional_properties() {
  for (const Json* const part : parts_) {
    const Json* const additional = member_of(*part, "additionalProperties");
    if (additional == nullptr || !grammar::may_exclude(*part, "additionalProperties")) continue;
    const Json* const listed = member_of(*part, "properties");
    const size_t num_listed = listed != nullptr && listed->is_object() ? listed->size() : 0;
    if (num_listed < properties_.size()) {
      set_problem("`additionalProperties` at the root restricts properties of another schema");
    } else if (!has_properties_ && *additional == false) {
      has_properties_ = true;
    } else if (!has_properties_) {
      set_problem("`additionalProperties` at the root without `properties`");
    }
  }
}

Json ToolParameters::as_document(const Json& property, Json document,
                                 size_t& num_bytes_left) const {
  const auto add_definitions = [&] {
    for (const char* const name : {"$defs", "definitions"}) {
      if (const Json* const definitions = member_of(root_, name)) document[name] = *definitions;
    }
  };
  ReachedParts reached;
  if (num_bytes_left > 0) {
    reached = parts_reached_from(property, root_);
    if (!reached.is_root_reached && reached.are_all_definitions) {
      if (reached.is_any_reached) add_definitions();
      return document;
    }
  }
  std::string name = "parameters";
  Json& definitions = document["$defs"];
  if (!definitions.is_object()) definitions = Json::object();
  while (definitions.contains(name)) name += '_';
  const auto point_below_name = [&name](std::string& reference) {
    reference = fmt::format("#/$defs/{}{}", name, reference.substr(1));
  };
  for_each_reference(document, point_below_name);
  if (num_bytes_left == 0) return document;
  Json copy = copy_of(reached, root_);
  const size_t num_bytes = dump_exact_json(copy).size();
  if (num_bytes > num_bytes_left) {
    num_bytes_left = 0;
    return document;
  }
  num_bytes_left -= num_bytes;
  for_each_reference(copy, point_below_name);
  document["$defs"][name] = std::move(copy);
  return document;
}

}  // namespace heddle::parsers
