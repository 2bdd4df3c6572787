// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_document.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/exact_json.h"
#include "grammar/schema_references.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxUnfolding = 128;  // most nested $ref, allOf and choices
constexpr size_t kMaxBranches = 64;    // most branches of a oneOf, which are compared pairwise
constexpr int kMaxCompared = 4;        // most levels of nested properties that are compared to
                                       // distinguish branches

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
  // An object that satisfies both schemas would have all properties that either of them requires.
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

}  // namespace

SchemaDocument::SchemaDocument(const Json& root) : root_(root) { add_part(root, {}); }

Status SchemaDocument::unfold(const Json& schema, Schemas& chain, UnfoldedSchema& out) {
  if (out.excluded_by != nullptr) return {};
  if (chain.size() > kMaxUnfolding) {
    return report({.at = &schema},
                  fmt::format("$ref, allOf, anyOf and oneOf follow each other more than {} times; "
                              "a $ref may not lead to itself before a property or item",
                              kMaxUnfolding),
                  Certainty::kForAll);
  }
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) out.excluded_by = &schema;
    return {};
  }
  if (!schema.is_object()) {
    return report({.at = &schema},
                  fmt::format("{} is no schema; a schema is an object or a boolean",
                              dump_exact_json(schema).substr(0, 40)),
                  Certainty::kCertain);
  }
  if (std::ranges::find(out.schemas, &schema) != out.schemas.end()) return {};
  if (checked_.insert(&schema).second) {
    for (const KeywordProblem& problem : check_keywords(schema)) {
      HEDDLE_RETURN_IF_ERROR(report({.at = &schema, .keyword = problem.keyword}, problem.message,
                                    Certainty::kCertain));
      if (problem.is_read) unreadable_.insert(&schema);
    }
  }
  if (unreadable_.contains(&schema)) return {};
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
    if (target != nullptr && std::ranges::find(chain, target) != chain.end()) {
      HEDDLE_RETURN_IF_ERROR(
          report({.at = &schema, .keyword = "$ref"},
                 fmt::format("\"{}\" leads back to itself; put a property or an item between",
                             reference->get<std::string>()),
                 Certainty::kForAll));
    } else if (target != nullptr) {
      HEDDLE_RETURN_IF_ERROR(unfold(*target, chain, out));
    }
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

// The target of a reference; null if it has no target and that is no error.
Result<const Json*> SchemaDocument::resolve(const Json& schema, const std::string& reference) {
  std::string path;
  const Json* const part = part_at(root_, reference, &path);
  if (part != nullptr) {
    add_part(*part, {.steps = std::move(path)});
    return part;
  }
  const bool is_pointer = reference.starts_with("#/");
  HEDDLE_RETURN_IF_ERROR(report(
      {.at = &schema, .keyword = "$ref"},
      fmt::format("\"{}\" {}", reference,
                  is_pointer ? "does not exist in the schema"
                             : "names no part of the schema: no $id or $anchor is called so, or "
                               "several are; other documents are not read"),
      Certainty::kCertain));
  return nullptr;
}

// The property that OpenAPI's discriminator names, as a schema that requires it: every document has
// it, even if a branch has a default for it and does not list it in `required`.
const Json* SchemaDocument::required_tag(const Json& schema) {
  const auto discriminator = schema.find("discriminator");
  if (discriminator == schema.end() || !discriminator->is_object()) return nullptr;
  const auto name = discriminator->find("propertyName");
  if (name == discriminator->end() || !name->is_string()) return nullptr;
  const Json required = {{"required", Json::array({*name})}};
  return &required_tags_.try_emplace(&schema, required).first->second;
}

// A oneOf is equivalent to anyOf if no document satisfies two branches.
Status SchemaDocument::check_one_of(const Json& schema, const SchemaChoice& choice) {
  const Json& branches = *choice.branches;
  if (!checked_.insert(&branches).second) return {};
  if (branches.size() > kMaxBranches) {
    return report({.at = &schema, .keyword = "oneOf"},
                  fmt::format("more than {} branches; use anyOf", kMaxBranches),
                  Certainty::kCertain);
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
      return report(
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
  if (ids_.contains(&value)) return value;
  std::string steps = "/" + escaped_step(keyword);
  if (name) steps += "/" + escaped_step(*name);
  add_part(value, {.from = id_of(schema), .steps = std::move(steps)});
  return value;
}

void SchemaDocument::add_part(const Json& part, Way way) {
  if (ids_.try_emplace(&part, ways_.size()).second) ways_.push_back(std::move(way));
}

SchemaDocument::PartId SchemaDocument::id_of(const Json& at) const {
  const auto id = ids_.find(&at);
  return id == ids_.end() ? kRoot : id->second;
}

size_t SchemaDocument::path_size_of(PartId part) const {
  size_t size = 0;
  for (; part != kRoot; part = ways_[part].from) size += ways_[part].steps.size();
  return size;
}

std::string SchemaDocument::path_of(PartId part) const {
  std::string path(path_size_of(part), '\0');
  size_t begin = path.size();
  for (; part != kRoot; part = ways_[part].from) {
    const std::string& steps = ways_[part].steps;
    begin -= steps.size();
    steps.copy(path.data() + begin, steps.size());
  }
  return path;
}

std::string SchemaDocument::shown_path_of(const Json& at, std::string_view keyword) const {
  std::string path(keyword);
  if (!keyword.empty()) path.insert(0, "/");
  for (PartId part = id_of(at); part != kRoot; part = ways_[part].from) {
    const std::string& steps = ways_[part].steps;
    if (path.size() + steps.size() > kMaxShownPath) {
      // Only the end of a long name is shown; it may begin within a character.
      size_t begin = steps.size() - (kMaxShownPath - std::min(path.size(), kMaxShownPath));
      while (begin < steps.size() && (steps[begin] & 0xC0) == 0x80) ++begin;
      return "..." + steps.substr(begin) + path;
    }
    path.insert(0, steps);
  }
  return path;
}

Status SchemaDocument::report(Problem problem, const std::string& message, Certainty certainty) {
  if (!collects()) return error_at(std::move(problem), message);
  if (certainty != Certainty::kCertain) {
    if (has_place_finding_ || has_finding_for_all_) return {};
    has_place_finding_ = true;
    has_finding_for_all_ = certainty == Certainty::kForAll;
  }
  std::string text = error_at(problem, message).message();
  add_finding(std::move(problem), std::move(text), certainty == Certainty::kCertain);
  return {};
}

void SchemaDocument::add_finding(Problem problem, std::string message, bool is_certain) {
  // The same part may have been reached from other places.
  if (!reported_.emplace(problem.at, problem.keyword, problem.name).second) return;
  Finding finding = finding_of(problem);
  finding.message = std::move(message);
  finding.is_certain = is_certain;
  findings_->push_back(std::move(finding));
}

SchemaDocument::Finding SchemaDocument::finding_of(const Problem& problem) const {
  Finding finding = {.problem = problem};
  // A part that required_tag() made cannot be removed alone, so the whole schema is.
  if (!ids_.contains(problem.at)) finding.problem = {.at = &root_};
  return finding;
}

Status SchemaDocument::report_in(std::string_view place, Problem problem,
                                 const std::string& message) {
  Status status = error_in(place, problem, message);
  if (!collects()) return status;
  add_finding(std::move(problem), status.message(), /*is_certain=*/false);
  return {};
}

Status SchemaDocument::error_at(Problem problem, const std::string& message) {
  const std::string place = shown_path_of(*problem.at, problem.keyword);
  return error_in(place, std::move(problem), message);
}

Status SchemaDocument::error_in(std::string_view place, Problem problem,
                                const std::string& message) {
  problem_ = std::move(problem);
  return invalid_argument(fmt::format("JSON schema at \"#{}\": {}", place, message));
}

}  // namespace heddle::grammar
