// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_places.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPlaces = 20000;

}  // namespace

SchemaPlaces::SchemaPlaces(Nfa& nfa, const Json& root, const JsonSchemaOptions& options)
    : nfa_(nfa),
      form_(options.form),
      parts_(nfa, options.allows_whitespace && form_ != ValueForm::kGemmaArguments,
             form_ == ValueForm::kGemmaArguments
                 ? TextSpelling{.mark = options.text_mark, .form = TextForm::kPlain}
                 : TextSpelling{}),
      document_(root) {}

RuleId SchemaPlaces::rule(Schemas schemas) {
  Schemas key = schemas;  // sorted below, because the order of schemas affects only the order of
                          // properties
  std::ranges::sort(key);
  const auto repeated = std::ranges::unique(key);
  key.erase(repeated.begin(), repeated.end());
  const auto found = rules_.find(key);
  if (found != rules_.end()) return found->second;
  if (rules_.size() >= kMaxPlaces) {
    nfa_.fail(invalid_argument(
        fmt::format("the JSON schema has more than {} different places", kMaxPlaces)));
    return 0;
  }
  const RuleId id = nfa_.add_rule(fmt::format(
      "JSON schema at \"#{}\"", schemas.empty() ? "" : document_.shown_path_of(*schemas.front())));
  rules_.emplace(std::move(key), id);
  places_.push_back({.rule = id,
                     .schemas = std::move(schemas),
                     .objects = form_ == ValueForm::kGemmaArguments ? &kGemmaBraces : &kBraces});
  unwritten_.push_back(&places_.back());
  return id;
}

RuleId SchemaPlaces::add_arguments(Schemas schemas) {
  const RuleId id = nfa_.add_rule("the arguments");
  places_.push_back({.rule = id, .schemas = std::move(schemas), .objects = &kArguments});
  unwritten_.push_back(&places_.back());
  return id;
}

const SchemaPlace* SchemaPlaces::take_unwritten() {
  if (unwritten_.empty()) return nullptr;
  const SchemaPlace* const next = unwritten_.back();
  unwritten_.pop_back();
  document_.begin_place();
  return next;
}

const SchemaPlace* SchemaPlaces::place_of(RuleId rule) const {
  const auto found = std::ranges::lower_bound(places_, rule, {}, &SchemaPlace::rule);
  return found != places_.end() && found->rule == rule ? &*found : nullptr;
}

void SchemaPlaces::fail(SchemaDocument::Problem problem, const std::string& message) {
  if (!nfa_.status().ok()) return;
  if (Status status = document_.report(std::move(problem), message); !status.ok()) {
    nfa_.fail(std::move(status));
  }
}

bool SchemaPlaces::unfold(const Json& schema, Schemas& chain, UnfoldedSchema& out) {
  const Status status = document_.unfold(schema, chain, out);
  if (!status.ok()) nfa_.fail(status);
  return status.ok();
}

std::optional<Schemas> SchemaPlaces::valid_values(const Schemas& schemas) {
  const Json* at = nullptr;
  std::optional<KeywordProblem> problem;
  std::optional<Schemas> values = grammar::valid_values(schemas, at, problem);
  if (problem) fail({.at = at, .keyword = problem->keyword}, problem->message);
  return values;
}

}  // namespace heddle::grammar
