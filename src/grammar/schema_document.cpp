// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_document.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxUnfolding = 128;  // $ref, allOf and choices inside each other
constexpr size_t kMaxBranches = 64;    // of a oneOf, whose branches are compared pair by pair
constexpr int kMaxCompared = 4;        // properties of properties that tell branches apart

bool are_disjoint(const Schemas& left, const Schemas& right, TypeSet types, int depth) {
  types = static_cast<TypeSet>(types & types_of(left) & types_of(right));
  if (types == 0) return true;
  const auto left_values = values_of(left);
  const auto right_values = values_of(right);
  if (left_values && right_values) {
    return std::ranges::none_of(*left_values, [&](const Json* value) {
      return std::ranges::any_of(*right_values,
                                 [&](const Json* other) { return equal_values(*value, *other); });
    });
  }
  if (types != kObject || depth > kMaxCompared) return false;
  // An object of both would have the properties that either requires.
  std::vector<std::string> names;
  for (const std::string& name : required_of(left)) {
    if (property_of(right, name).is_forbidden) return true;
    names.push_back(name);
  }
  for (const std::string& name : required_of(right)) {
    if (property_of(left, name).is_forbidden) return true;
    names.push_back(name);
  }
  return std::ranges::any_of(names, [&](const std::string& name) {
    return are_disjoint(property_of(left, name).schemas, property_of(right, name).schemas, kAnyType,
                        depth + 1);
  });
}

// A step of a JSON pointer.
std::string escaped_step(std::string_view step) {
  std::string text;
  for (const char letter : step) {
    if (letter == '~') {
      text += "~0";
    } else if (letter == '/') {
      text += "~1";
    } else {
      text += letter;
    }
  }
  return text;
}

// Whether "#" within a schema means the schema: it has an "$id" that is no mere anchor.
bool is_resource(const Json& schema) {
  if (!schema.is_object()) return false;
  const auto id = schema.find("$id");
  return id != schema.end() && id->is_string() &&
         !id->get_ref<const std::string&>().starts_with('#');
}

}  // namespace

SchemaDocument::SchemaDocument(const Json& root) : root_(root) {
  places_.emplace(&root, Place{.path = "", .resource = &root});
}

Status SchemaDocument::unfold(const Json& schema, Schemas& chain, UnfoldedSchema& out) {
  if (out.excluded_by != nullptr) return {};
  if (chain.size() > kMaxUnfolding) {
    return error_at({.at = &schema},
                    fmt::format("$ref, allOf, anyOf and oneOf follow each other more than {} "
                                "times; a $ref may not lead to itself before a property or item",
                                kMaxUnfolding));
  }
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) out.excluded_by = &schema;
    return {};
  }
  if (!schema.is_object()) {
    return error_at({.at = &schema},
                    fmt::format("{} is no schema; a schema is an object or a boolean",
                                schema.dump().substr(0, 40)));
  }
  if (std::ranges::find(out.schemas, &schema) != out.schemas.end()) return {};
  if (checked_.insert(&schema).second) {
    if (const auto problem = check_keywords(schema)) {
      return error_at({.at = &schema, .keyword = problem->keyword}, problem->message);
    }
  }
  if (const auto excluded = schema.find("not"); excluded != schema.end()) {
    if (*excluded != false) {
      out.excluded_by = &schema;
      return {};
    }
  }
  out.schemas.push_back(&schema);
  chain.push_back(&schema);
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    HEDDLE_ASSIGN_OR_RETURN(const Json* const target,
                            resolve(schema, reference->get_ref<const std::string&>()));
    if (std::ranges::find(chain, target) != chain.end()) {
      return error_at({.at = &schema, .keyword = "$ref"},
                      fmt::format("\"{}\" leads back to itself; put a property or an item between",
                                  reference->get<std::string>()));
    }
    HEDDLE_RETURN_IF_ERROR(unfold(*target, chain, out));
  }
  if (const auto all = schema.find("allOf"); all != schema.end()) {
    for (size_t i = 0; i < all->size(); ++i) {
      HEDDLE_RETURN_IF_ERROR(
          unfold(child(schema, "allOf", std::to_string(i), (*all)[i]), chain, out));
    }
  }
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    const auto branches = schema.find(keyword);
    if (branches == schema.end()) continue;
    for (size_t i = 0; i < branches->size(); ++i) {
      child(schema, keyword, std::to_string(i), (*branches)[i]);
    }
    SchemaChoice choice = {.branches = &*branches, .chain = chain};
    if (std::string_view(keyword) == "oneOf") {
      choice.beside = required_tag(schema);
      HEDDLE_RETURN_IF_ERROR(check_one_of(schema, choice));
    }
    out.choices.push_back(std::move(choice));
  }
  chain.pop_back();
  return {};
}

Result<const Json*> SchemaDocument::resolve(const Json& schema, const std::string& reference) {
  Place place = place_of(*place_of(schema).resource);
  if (reference == "#") return place.resource;
  if (!reference.starts_with("#/")) {
    return error_at({.at = &schema, .keyword = "$ref"},
                    fmt::format("\"{}\" is not served; refer to a place in the same document, "
                                "as in \"#/$defs/name\"",
                                reference));
  }
  const Json* at = place.resource;
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    const std::optional<std::string> step = pointer_step(reference.substr(begin, end - begin));
    const Json* next = nullptr;
    if (step && at->is_object()) {
      if (const auto found = at->find(*step); found != at->end()) next = &*found;
    } else if (step && at->is_array()) {
      if (const auto index = list_index(*step); index && *index < at->size()) next = &(*at)[*index];
    }
    if (next == nullptr) {
      return error_at({.at = &schema, .keyword = "$ref"},
                      fmt::format("\"{}\" does not exist in the schema", reference));
    }
    at = next;
    begin = end + 1;
    place.path += "/" + escaped_step(*step);
    if (!is_resource(*at)) continue;
    place.resource = at;
    places_.try_emplace(at, place);
  }
  places_.try_emplace(at, std::move(place));
  return at;
}

// OpenAPI's discriminator names a property that every document has, also where a branch has a
// default for it and does not list it in `required`.
const Json* SchemaDocument::required_tag(const Json& schema) {
  const auto discriminator = schema.find("discriminator");
  if (discriminator == schema.end() || !discriminator->is_object()) return nullptr;
  const auto name = discriminator->find("propertyName");
  if (name == discriminator->end() || !name->is_string()) return nullptr;
  const Json required = {{"required", Json::array({*name})}};
  return &required_tags_.try_emplace(&schema, required).first->second;
}

// oneOf is as anyOf where no document satisfies two branches.
Status SchemaDocument::check_one_of(const Json& schema, const SchemaChoice& choice) {
  const Json& branches = *choice.branches;
  if (!checked_.insert(&branches).second) return {};
  if (branches.size() > kMaxBranches) {
    return error_at({.at = &schema, .keyword = "oneOf"},
                    fmt::format("more than {} branches; use anyOf", kMaxBranches));
  }
  std::vector<UnfoldedSchema> unfolded(branches.size());
  Schemas chain = choice.chain;
  for (size_t i = 0; i < branches.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(unfold(branches[i], chain, unfolded[i]));
    if (choice.beside != nullptr) {
      HEDDLE_RETURN_IF_ERROR(unfold(*choice.beside, chain, unfolded[i]));
    }
  }
  const TypeSet types = types_of({&schema});
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (unfolded[i].excluded_by != nullptr || unfolded[j].excluded_by != nullptr) continue;
      if (are_disjoint(unfolded[j].schemas, unfolded[i].schemas, types, 0)) continue;
      return error_at(
          {.at = &schema, .keyword = "oneOf"},
          fmt::format("branches {} and {} may both be valid for a document; give them different "
                      "types or a required property with different const values, or use anyOf",
                      j, i));
    }
  }
  return {};
}

const Json& SchemaDocument::child(const Json& schema, std::string_view keyword,
                                  const std::optional<std::string>& name, const Json& value) {
  if (places_.contains(&value)) return value;
  Place place = place_of(schema);
  place.path += "/" + escaped_step(keyword);
  if (name) place.path += "/" + escaped_step(*name);
  if (is_resource(value)) place.resource = &value;
  places_.emplace(&value, std::move(place));
  return value;
}

SchemaDocument::Place SchemaDocument::place_of(const Json& at) const {
  const auto found = places_.find(&at);
  return found == places_.end() ? Place{.path = "", .resource = &root_} : found->second;
}

std::string SchemaDocument::path_of(const Json& at) const { return place_of(at).path; }

Status SchemaDocument::error_at(Problem problem, const std::string& message) {
  std::string place = path_of(*problem.at);
  if (!problem.keyword.empty()) place += "/" + problem.keyword;
  return error_in(place, std::move(problem), message);
}

Status SchemaDocument::error_in(std::string_view place, Problem problem,
                                const std::string& message) {
  problem_ = std::move(problem);
  return invalid_argument(
      fmt::format("JSON schema at \"#{}\": {}", place.empty() ? "/" : place, message));
}

}  // namespace heddle::grammar
