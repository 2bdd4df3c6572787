// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_schema.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "grammar/array_schema.h"
#include "grammar/automaton.h"
#include "grammar/contradictions.h"
#include "grammar/object_schema.h"
#include "grammar/scalar_schema.h"
#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_places.h"
#include "grammar/schema_references.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxAlternatives = 1024;  // most alternatives per place, after its allOf and $ref
                                           // are resolved

class SchemaCompiler {
 public:
  SchemaCompiler(Nfa& nfa, const Json& root, const JsonSchemaOptions& options)
      : nfa_(nfa), root_(root), options_(options), places_(nfa, root, options) {}

  Status compile(NfaState from, NfaState to) {
    const auto first_rule = static_cast<RuleId>(nfa_.rules().size());
    const auto first_state = static_cast<NfaState>(nfa_.states().size());
    // The root schema may also occur inside itself, where its values are not arguments and are
    // written as other values.
    const bool is_python = options_.form == ValueForm::kPythonArguments;
    const RuleId root = is_python ? places_.add_arguments({&root_}) : places_.rule({&root_});
    nfa_.add_call(from, root, to);
    for (const SchemaPlace* place = places_.take_unwritten();
         place != nullptr && nfa_.status().ok(); place = places_.take_unwritten()) {
      add_place(*place);
    }
    if (!nfa_.status().ok() || has_findings()) return nfa_.status();
    matching_ = matching_rules(nfa_, first_rule, first_state);
    allows_documents_ = matching_[root];
    if (!allows_documents_ && options_.refuses_contradictions) {
      find_contradictions(root);
      for (const Contradiction& found : contradictions_) report(found);
    }
    return nfa_.status();
  }

  // Whether any document is valid; call it after compile().
  [[nodiscard]] bool allows_documents() const { return allows_documents_; }

  [[nodiscard]] SchemaDocument& document() { return places_.document(); }

 private:
  [[nodiscard]] bool has_findings() const {
    const SchemaDocument& document = places_.document();
    return document.collects() && !document.findings().empty();
  }

  void add_place(const SchemaPlace& place) {
    const Nfa::Rule rule = nfa_.rules()[place.rule];
    for_each_alternative(place.schemas, [&](const UnfoldedSchema& alternative) {
      if (alternative.excluded_by != nullptr) return;
      add_plain(rule.begin, alternative.schemas, *place.objects, rule.end);
    });
  }

  // Calls `visit` for each combination: the schemas together with one branch of each choice.
  template <typename Visit>
  void for_each_alternative(const Schemas& schemas, const Visit& visit) {
    num_alternatives_ = 0;
    UnfoldedSchema unfolded;
    Schemas chain;
    for (const Json* schema : schemas) {
      if (!places_.unfold(*schema, chain, unfolded)) return;
    }
    choose(std::move(unfolded), visit);
  }

  template <typename Visit>
  void choose(UnfoldedSchema unfolded, const Visit& visit) {
    if (!nfa_.status().ok()) return;
    if (unfolded.excluded_by != nullptr || unfolded.choices.empty()) return visit(unfolded);
    SchemaChoice choice = std::move(unfolded.choices.back());
    unfolded.choices.pop_back();
    for (const Json& branch : *choice.branches) {
      if (++num_alternatives_ > kMaxAlternatives) {
        return places_.fail(
            {.at = unfolded.schemas.front()},
            fmt::format("anyOf and oneOf combine to more than {} alternatives", kMaxAlternatives));
      }
      UnfoldedSchema chosen = unfolded;
      if (!places_.unfold(branch, choice.chain, chosen)) return;
      if (choice.beside != nullptr && !places_.unfold(*choice.beside, choice.chain, chosen)) return;
      choose(std::move(chosen), visit);
    }
  }

  void add_plain(NfaState from, const Schemas& schemas, const ObjectSpelling& objects,
                 NfaState to) {
    TypeSet types = types_of(schemas);
    if (const std::optional<Schemas> values = places_.valid_values(schemas)) {
      if (objects.is_call) {
        const auto at = std::ranges::find_if(
            schemas, [](const Json* schema) { return values_of({schema}).has_value(); });
        return places_.fail({.at = *at, .keyword = (*at)->contains("const") ? "const" : "enum"},
                            "arguments of a call cannot be chosen as a whole; use properties");
      }
      for (const Json* value : *values) {
        if (can_spell(*value, options_.form)) nfa_.add_text(from, places_.spell(*value), to);
      }
      return;
    }
    if (types == kAnyType) types = types_of_keywords(schemas);
    if (objects.is_call) types &= kObject;
    const LiteralWords words = literal_words(options_.form);
    if ((types & kNull) != 0) nfa_.add_text(from, words.null_word, to);
    if ((types & kBoolean) != 0) {
      nfa_.add_text(from, words.true_word, to);
      nfa_.add_text(from, words.false_word, to);
    }
    if ((types & (kInteger | kFraction)) != 0) {
      take(add_numbers(places_.parts(), from, schemas, types, to));
    }
    if ((types & kString) != 0) take(add_texts(places_.parts(), from, schemas, to));
    if ((types & kArray) != 0) add_arrays(places_, from, schemas, to);
    if ((types & kObject) != 0) add_objects(places_, objects, from, schemas, to);
  }

  void take(const std::optional<ScalarProblem>& problem) {
    if (problem) {
      places_.fail({.at = problem->at, .keyword = problem->keyword}, problem->message);
    }
  }

  // ---- Why no document is valid

  void report(const Contradiction& found) {
    const std::string message =
        found.message +
        ", so that the schema matches no text at all; change or leave out one of these";
    SchemaDocument::Problem problem = found.problem;
    const auto report_problem = [&] {
      Status status = places_.document().report_in(found.place, problem, message);
      if (!status.ok()) nfa_.fail(std::move(status));
    };
    report_problem();
    if (!places_.document().collects()) return;
    for (const std::string& name : found.more_names) {
      problem.name = name;
      report_problem();
    }
  }

  // A rule that no text matches, while the rules that cause it are examined.
  struct Unmatched {
    RuleId rule;
    Schemas around;  // the schemas of its place, or of the innermost place that contains it
    std::vector<RuleId> inner;
    size_t next = 0;  // next element of `inner` to examine
  };

  // Follows unmatched rules from the root's place inwards to those that no value satisfies,
  // whatever their parts are. Collects all such rules on the path with the fewest of them or, if
  // problems are errors, only the first.
  void find_contradictions(RuleId root) {
    std::unordered_map<RuleId, bool> is_open;  // false: its path has been followed to the end
    std::vector<Unmatched> open;
    const auto enter = [&](RuleId rule, Schemas around) {
      is_open[rule] = true;
      open.push_back({.rule = rule, .around = std::move(around), .inner = {}});
      follow(open.back());
    };
    enter(root, {&root_});
    while (!open.empty()) {
      if (options_.check != nullptr && !(*options_.check)().ok()) return;
      if (!nfa_.status().ok()) return;
      if (!places_.document().collects() && !contradictions_.empty()) return;
      Unmatched& outer = open.back();
      if (outer.next == outer.inner.size()) {
        is_open[outer.rule] = false;
        open.pop_back();
        continue;
      }
      const RuleId inner = outer.inner[outer.next++];
      const auto known = is_open.find(inner);
      if (known == is_open.end()) {
        enter(inner, outer.around);
      } else if (known->second) {
        const SchemaPlace* const place = places_.place_of(inner);
        add_contradiction(endless_nesting(
            outer.around, place == nullptr ? Schemas{} : place->schemas, places_.document()));
      }
    }
  }

  // Adds the unmatched rules on its path; if there are none, adds the contradiction of the place
  // itself.
  void follow(Unmatched& unmatched) {
    const SchemaPlace* const place = places_.place_of(unmatched.rule);
    const std::vector<UnfoldedSchema> alternatives =
        place == nullptr ? std::vector<UnfoldedSchema>(1) : alternatives_of(*place);
    // One rule for each alternative, except alternatives without a place.
    std::vector<RuleId> rules;
    const auto first_rule = static_cast<RuleId>(nfa_.rules().size());
    const auto first_state = static_cast<NfaState>(nfa_.states().size());
    for (const UnfoldedSchema& alternative : alternatives) {
      rules.push_back(place == nullptr ? unmatched.rule : rule_of(alternative, *place->objects));
    }
    // If the limit of states is exceeded, nothing is known about the rules.
    if (!nfa_.status().ok() || alternatives.empty()) return;
    if (nfa_.rules().size() > first_rule) {
      matching_ = matching_rules(nfa_, first_rule, first_state, matching_);
    }
    const auto is_matching = [&](RuleId callee) { return matching_[callee]; };
    std::optional<Way> best;
    size_t chosen = 0;
    for (size_t i = 0; i < rules.size(); ++i) {
      std::optional<Way> way = easiest_way(nfa_, rules[i], is_matching);
      if (!way || (best && best->num_unmatched <= way->num_unmatched)) continue;
      best = std::move(way);
      chosen = i;
    }
    if (best && !best->unmatched.empty()) {
      if (place != nullptr) unmatched.around = alternatives[chosen].schemas;
      unmatched.inner = std::move(best->unmatched);
    } else {
      add_contradiction(place == nullptr ? endless_nesting(unmatched.around, {}, places_.document())
                                         : explain(alternatives.front(), *place->objects));
    }
  }

  // Skips a contradiction that ends, or may end, when the part that another one names is removed.
  void add_contradiction(Contradiction found) {
    const auto keyword_of = [](const Contradiction& one) {
      return std::pair(one.problem.at, one.problem.keyword);
    };
    const bool is_separate =
        !blamed_.contains(keyword_of(found)) && !involved_.contains(keyword_of(found)) &&
        std::ranges::none_of(found.keywords,
                             [&](const auto& keyword) { return blamed_.contains(keyword); });
    if (!is_separate) return;
    blamed_.insert(keyword_of(found));
    involved_.insert(found.keywords.begin(), found.keywords.end());
    contradictions_.push_back(std::move(found));
  }

  std::vector<UnfoldedSchema> alternatives_of(const SchemaPlace& place) {
    std::vector<UnfoldedSchema> alternatives;
    for_each_alternative(place.schemas, [&](const UnfoldedSchema& alternative) {
      alternatives.push_back(alternative);
    });
    return alternatives;
  }

  RuleId rule_of(const UnfoldedSchema& alternative, const ObjectSpelling& objects) {
    const RuleId id = nfa_.add_rule("one of several");
    const Nfa::Rule rule = nfa_.rules()[id];
    if (alternative.excluded_by == nullptr) {
      add_plain(rule.begin, alternative.schemas, objects, rule.end);
    }
    return id;
  }

  Contradiction explain(const UnfoldedSchema& alternative, const ObjectSpelling& objects) {
    if (const Json* const at = alternative.excluded_by) {
      if (at->is_boolean()) {
        return {.problem = {.at = at},
                .place = places_.document().shown_path_of(*at),
                .message = "false allows no value",
                .keywords = {{at, ""}}};
      }
      return {.problem = {.at = at, .keyword = "not"},
              .place = places_.document().shown_path_of(*at, "not"),
              .message = fmt::format("not {} allows no value", dump_exact_json((*at)["not"])),
              .keywords = {{at, "not"}}};
    }
    const auto is_possible = [&](const Schemas& schemas) {
      Nfa nfa;
      const RuleId rule = nfa.add_rule("a value");
      const Nfa::Rule place = nfa.rules()[rule];
      SchemaCompiler part(nfa, root_, options_);
      part.add_plain(place.begin, schemas, objects, place.end);
      return !nfa.status().ok() || easiest_way(nfa, rule, [](RuleId) { return true; }).has_value();
    };
    return contradiction_of(alternative.schemas, places_.document(), is_possible);
  }

  Nfa& nfa_;
  const Json& root_;
  const JsonSchemaOptions options_;
  SchemaPlaces places_;
  size_t num_alternatives_ = 0;  // for the place that is being added
  bool allows_documents_ = true;

  // The key of the map in find_contradictions().
  using KeywordOf = std::pair<const Json*, std::string>;

  std::vector<bool> matching_;  // by rule: whether any text matches it
  std::vector<Contradiction> contradictions_;
  std::set<KeywordOf> blamed_, involved_;
};

int depth_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_string) {
      if (letter == '\\') ++i;
      if (letter == '"') in_string = false;
    } else if (letter == '"') {
      in_string = true;
    } else if (letter == '{' || letter == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (letter == '}' || letter == ']') {
      --depth;
    }
  }
  return deepest;
}

// Removes a problem from a schema; its part is at `path`, and `problem.at` is not used. Returns
// false if the part is the whole schema.
bool leave_out(const SchemaDocument::Problem& problem, const std::string& path, Json& schema) {
  const Json::json_pointer place(path);
  if (!schema.contains(place)) return true;
  Json& part = schema[place];
  if (problem.keyword.empty()) {
    if (&part == &schema) return false;
    part = true;
    return true;
  }
  const auto found = part.find(problem.keyword);
  if (found == part.end()) return true;
  if (!problem.name.empty() && found->is_object()) {
    found->erase(problem.name);
  } else if (!problem.name.empty() && found->is_array()) {
    std::erase(found->get_ref<Json::array_t&>(), Json(problem.name));
  } else if (problem.keyword == "oneOf" && !part.contains("anyOf") && found->is_array()) {
    // The schema's oneOf becomes an anyOf, with one branch or several.
    part["anyOf"] = Json(*found);
    part.erase("oneOf");
    return true;
  } else {
    part.erase(problem.keyword);
    return true;
  }
  if (found->empty()) part.erase(problem.keyword);
  return true;
}

}  // namespace

Result<Json> parse_schema(std::string_view text) {
  if (text.size() > kMaxSchemaBytes) {
    return invalid_argument(fmt::format("the JSON schema has {} bytes; at most {} are served",
                                        text.size(), kMaxSchemaBytes));
  }
  if (const int depth = depth_of(text); depth > kMaxSchemaDepth) {
    return invalid_argument(fmt::format(
        "the JSON schema is nested {} levels deep; at most {} are served. Use $defs and $ref",
        depth, kMaxSchemaDepth));
  }
  Result<Json> schema = parse_exact_json(text);
  if (!schema.ok()) return invalid_argument("the JSON schema is not valid JSON");
  return schema;
}

Status add_json_schema(Nfa& nfa, NfaState from, const Json& schema,
                       const JsonSchemaOptions& options, NfaState to) {
  const Result<std::optional<Json>> pointed = point_references(schema);
  if (!pointed.ok()) {
    nfa.fail(pointed.status());
    return nfa.status();
  }
  return SchemaCompiler(nfa, *pointed ? **pointed : schema, options).compile(from, to);
}

Result<WeakenedSchema> weaken_schema(Json schema, const JsonSchemaOptions& options) {
  using Finding = SchemaDocument::Finding;
  constexpr int kMaxRounds = 100;
  WeakenedSchema result;
  Result<std::optional<Json>> pointed = point_references(schema);
  if (!pointed.ok()) {
    result.left_out.push_back(pointed.status().message());
    return result;
  }
  if (*pointed) schema = **std::move(pointed);
  for (int round = 0; round < kMaxRounds; ++round) {
    if (options.check != nullptr) HEDDLE_RETURN_IF_ERROR((*options.check)());
    Nfa nfa;
    const RuleId root = nfa.add_rule("the schema");
    const Nfa::Rule rule = nfa.rules()[root];
    SchemaCompiler compiler(nfa, schema, options);
    SchemaDocument& document = compiler.document();
    document.collect_findings();
    Status status = compiler.compile(rule.begin, rule.end);
    std::vector<Finding> findings = document.findings();
    if (findings.empty() && !status.ok() && document.problem()) {
      findings.push_back(document.finding_of(*document.problem()));
      findings.back().message = status.message();
    }
    if (findings.empty() && status.ok()) {
      if (!compiler.allows_documents()) {
        result.schema = std::move(schema);
        return result;
      }
      const Result<Automaton> automaton = Automaton::build(nfa, root);
      if (automaton.ok()) {
        result.schema = std::move(schema);
        result.num_states = automaton->num_states();
        return result;
      }
      status = automaton.status();
    }
    if (findings.empty()) {
      result.left_out.push_back(status.message());
      return result;
    }
    if (std::ranges::any_of(findings, &Finding::is_certain)) {
      std::erase_if(findings, [](const Finding& finding) { return !finding.is_certain; });
    }
    for (const Finding& finding : findings) result.left_out.push_back(finding.message);

    // Inner parts come first, because names of parts that contain them may change. After the first
    // change parts are identified by id, because addresses may be invalid.
    struct Place {
      size_t path_size;
      SchemaDocument::PartId part;
      const SchemaDocument::Problem* problem;
    };

    std::vector<Place> order;
    for (const Finding& finding : findings) {
      const SchemaDocument::PartId part = document.id_of(*finding.problem.at);
      order.push_back({document.path_size_of(part), part, &finding.problem});
    }
    std::ranges::sort(order, std::ranges::greater(), &Place::path_size);
    for (const Place& place : order) {
      if (!leave_out(*place.problem, document.path_of(place.part), schema)) return result;
    }
  }
  result.left_out.push_back(fmt::format(
      "after {} rounds of leaving out what cannot be kept to, more is left; all of the schema is "
      "left out but for its types",
      kMaxRounds));
  return result;
}

}  // namespace heddle::grammar
