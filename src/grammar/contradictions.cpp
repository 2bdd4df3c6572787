// SPDX-License-Identifier: Apache-2.0
#include "grammar/contradictions.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "grammar/number_range.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

// A keyword of one of several schemas that apply together.
struct Statement {
  size_t schema;
  std::string keyword;
  std::vector<std::string> names = {};  // for the keyword `required`: the names it lists
};

// Keywords that refer to other schemas, which are checked, too.
constexpr std::array<std::string_view, 4> kUnfolded = {"$ref", "allOf", "anyOf", "oneOf"};

std::vector<Statement> statements_of(const Schemas& schemas) {
  std::vector<Statement> statements;
  for (size_t i = 0; i < schemas.size(); ++i) {
    if (!schemas[i]->is_object()) continue;
    for (const auto& [keyword, value] : schemas[i]->items()) {
      if (std::ranges::find(kUnfolded, keyword) != kUnfolded.end()) continue;
      if (types_of_keyword(keyword) == 0) continue;
      Statement statement{.schema = i, .keyword = keyword};
      if (keyword == "required") statement.names = required_of({schemas[i]});
      // Forbidden names contradict whatever the other keywords say. Other names may only seem to,
      // while `properties` is removed.
      std::vector<std::string> forbidden;
      std::ranges::copy_if(
          statement.names, std::back_inserter(forbidden),
          [&](const std::string& name) { return property_of(schemas, name).is_forbidden; });
      if (!forbidden.empty()) statement.names = std::move(forbidden);
      statements.push_back(std::move(statement));
    }
  }
  return statements;
}

bool is_possible_with(const Schemas& schemas, const std::vector<Statement>& statements,
                      const std::function<bool(const Schemas&)>& is_possible) {
  std::vector<Json> parts(schemas.size(), Json::object());
  for (const Statement& statement : statements) {
    const auto value = schemas[statement.schema]->find(statement.keyword);
    parts[statement.schema][statement.keyword] =
        statement.keyword == "required" ? Json(statement.names) : *value;
  }
  Schemas whole;
  for (const Json& part : parts) whole.push_back(&part);
  return is_possible(whole);
}

// Reduces the statements to a smallest set that no value satisfies.
void reduce(const Schemas& schemas, std::vector<Statement>& statements,
            const std::function<bool(const Schemas&)>& is_possible) {
  for (size_t i = statements.size(); i-- > 0;) {
    std::vector<Statement> fewer = statements;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (!is_possible_with(schemas, fewer, is_possible)) statements = std::move(fewer);
  }
  // Usually one required name is sufficient: halves the names repeatedly and keeps a half that
  // contains it.
  for (size_t i = 0; i < statements.size(); ++i) {
    while (statements[i].names.size() > 1) {
      const std::vector<std::string> names = statements[i].names;
      const auto middle = names.begin() + static_cast<std::ptrdiff_t>(names.size() / 2);
      statements[i].names.assign(names.begin(), middle);
      if (!is_possible_with(schemas, statements, is_possible)) continue;
      statements[i].names.assign(middle, names.end());
      if (!is_possible_with(schemas, statements, is_possible)) continue;
      statements[i].names = names;
      break;
    }
  }
}

// The order in which keywords are tried for removal: first those that concern the whole value
// least.
int rank_of(std::string_view keyword) {
  constexpr std::array<std::string_view, 4> kParts = {"properties", "items", "prefixItems",
                                                      "additionalProperties"};
  if (keyword == "required") return 0;
  if (keyword == "type") return 2;
  if (keyword == "enum" || keyword == "const") return 3;
  return std::ranges::find(kParts, keyword) == kParts.end() ? 1 : 4;
}

// Whether a number's bound is so large that the grammar writes no number beyond it anyway.
bool is_bound_beyond_digits(std::string_view keyword, const Json& bound) {
  constexpr std::array<std::string_view, 4> kBounds = {"minimum", "exclusiveMinimum", "maximum",
                                                       "exclusiveMaximum"};
  if (std::ranges::find(kBounds, keyword) == kBounds.end()) return false;
  constexpr Nanos kMost = kMaxInteger * kNanosPerUnit;
  const Result<Nanos> value = nanos_of(bound);
  return value.ok() && (*value > kMost || *value < -kMost);
}

std::string description_of(const Statement& statement, const Json& schema) {
  if (statement.names.size() == 1) return fmt::format("required \"{}\"", statement.names.front());
  const Json& value = schema[statement.keyword];
  if (value.is_object()) return statement.keyword;
  constexpr size_t kMaxShown = 60;
  std::string text = wide_number_spelling(value) ? dump_exact_json(value)
                                                 : value.dump(-1, ' ', /*ensure_ascii=*/true,
                                                              Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  const std::string_view note =
      is_bound_beyond_digits(statement.keyword, value) ? " (numbers have at most 18 digits)" : "";
  return fmt::format("{} {}{}", statement.keyword, text, note);
}

}  // namespace

std::vector<bool> matching_rules(const Nfa& nfa, RuleId first_rule, NfaState first_state,
                                 const std::vector<bool>& known) {
  const size_t num_states = nfa.states().size() - first_state;
  // predecessors of each state by empty moves or byte moves
  std::vector<std::vector<NfaState>> sources(num_states);
  std::vector<std::vector<std::pair<NfaState, RuleId>>> callers(num_states);
  for (NfaState i = 0; i < num_states; ++i) {
    const Nfa::State& state = nfa.states()[first_state + i];
    const auto add_source = [&](NfaState target) {
      if (target >= first_state) sources[target - first_state].push_back(i);
    };
    for (const NfaState target : state.empty_moves) add_source(target);
    for (const Nfa::ByteMove& move : state.byte_moves) add_source(move.target);
    for (const Nfa::Call& call : state.calls) {
      if (call.target >= first_state) {
        callers[call.target - first_state].emplace_back(i, call.rule);
      }
    }
  }
  const size_t num_rules = nfa.rules().size() - first_rule;
  std::vector<std::vector<RuleId>> rules_at(num_states);  // rules by their first state
  std::vector<bool> can_end(num_states);
  std::vector<NfaState> queue;
  const auto mark = [&](NfaState state) {
    if (can_end[state]) return;
    can_end[state] = true;
    queue.push_back(state);
  };
  for (RuleId rule = first_rule; rule < nfa.rules().size(); ++rule) {
    rules_at[nfa.rules()[rule].begin - first_state].push_back(rule);
    mark(nfa.rules()[rule].end - first_state);
  }
  std::vector<bool> matching = known;
  matching.resize(first_rule);
  matching.resize(nfa.rules().size());
  // ends that are reached if the rule matches a text
  std::vector<std::vector<NfaState>> waiting(num_rules);
  for (size_t next = 0; next < queue.size(); ++next) {
    const NfaState state = queue[next];
    for (const NfaState source : sources[state]) mark(source);
    for (const auto& [caller, rule] : callers[state]) {
      if (matching[rule]) {
        mark(caller);
      } else if (rule >= first_rule) {
        waiting[rule - first_rule].push_back(caller);
      }
    }
    for (const RuleId rule : rules_at[state]) {
      matching[rule] = true;
      for (const NfaState caller : waiting[rule - first_rule]) mark(caller);
    }
  }
  return matching;
}

std::optional<Way> easiest_way(const Nfa& nfa, RuleId rule,
                               const std::function<bool(RuleId)>& is_matching) {
  struct Step {
    NfaState from;
    size_t num_unmatched;
    std::optional<RuleId> unmatched;  // rule called between `from` and this state
  };

  const NfaState begin = nfa.rules()[rule].begin;
  const NfaState end = nfa.rules()[rule].end;
  std::unordered_map<NfaState, Step> steps;
  std::deque<NfaState> queue = {begin};
  steps.emplace(begin, Step{.from = begin, .num_unmatched = 0, .unmatched = std::nullopt});
  const auto reach = [&](NfaState target, const Step& step) {
    const auto known = steps.find(target);
    if (known != steps.end() && known->second.num_unmatched <= step.num_unmatched) return;
    steps.insert_or_assign(target, step);
    step.unmatched ? queue.push_back(target) : queue.push_front(target);
  };
  while (!queue.empty()) {
    const NfaState state = queue.front();
    queue.pop_front();
    Step next = {.from = state, .num_unmatched = steps.at(state).num_unmatched, .unmatched = {}};
    if (state == end) {
      Way way = {.num_unmatched = next.num_unmatched, .unmatched = {}};
      for (NfaState at = end; at != begin; at = steps.at(at).from) {
        if (const auto& called = steps.at(at).unmatched) way.unmatched.push_back(*called);
      }
      std::ranges::reverse(way.unmatched);
      return way;
    }
    for (const NfaState target : nfa.states()[state].empty_moves) reach(target, next);
    for (const Nfa::ByteMove& move : nfa.states()[state].byte_moves) reach(move.target, next);
    for (const Nfa::Call& call : nfa.states()[state].calls) {
      if (is_matching(call.rule)) reach(call.target, next);
    }
    ++next.num_unmatched;
    for (const Nfa::Call& call : nfa.states()[state].calls) {
      next.unmatched = call.rule;
      if (!is_matching(call.rule)) reach(call.target, next);
    }
  }
  return std::nullopt;
}

Contradiction contradiction_of(const Schemas& schemas, const SchemaDocument& document,
                               const std::function<bool(const Schemas&)>& is_possible) {
  std::vector<Statement> statements = statements_of(schemas);
  reduce(schemas, statements, is_possible);
  if (statements.empty()) {
    return {.problem = {.at = schemas.front()},
            .place = document.shown_path_of(*schemas.front()),
            .message = "no value satisfies it",
            .keywords = {{schemas.front(), ""}}};
  }
  const Statement* least = &statements.front();
  std::string list;
  const std::string place = document.shown_path_of(*schemas[statements.front().schema]);
  Contradiction found;
  for (size_t i = 0; i < statements.size(); ++i) {
    const Statement& statement = statements[i];
    const Json& schema = *schemas[statement.schema];
    if (i > 0) list += i + 1 == statements.size() ? " and " : ", ";
    list += description_of(statement, schema);
    const std::string path = document.shown_path_of(schema);
    if (path != place) list += fmt::format(" (at \"#{}\")", path);
    if (rank_of(statement.keyword) <= rank_of(least->keyword)) least = &statement;
    found.keywords.emplace_back(&schema, statement.keyword);
  }
  const std::string name = least->names.size() == 1 ? least->names.front() : "";
  const Json& blamed = *schemas[least->schema];
  found.problem = {.at = &blamed, .keyword = least->keyword, .name = name};
  found.place = place;
  found.message =
      statements.size() == 1 ? "no value satisfies " + list : list + " contradict each other";
  if (!name.empty() && property_of(schemas, name).is_forbidden) {
    found.more_names = required_of({&blamed});
    std::erase_if(found.more_names, [&](const std::string& other) {
      return other == name || !property_of(schemas, other).is_forbidden;
    });
  }
  return found;
}

Contradiction endless_nesting(const Schemas& schemas, const Schemas& inner,
                              const SchemaDocument& document) {
  const auto blame = [&](const Json& schema, const std::string& keyword, const std::string& name) {
    return Contradiction{
        .problem = {.at = &schema, .keyword = keyword, .name = name},
        .place = document.shown_path_of(schema, keyword),
        .message = fmt::format("{}a value would have to contain another one of its kind, without "
                               "an end",
                               name.empty() ? "" : fmt::format("required \"{}\": ", name)),
        .keywords = {{&schema, keyword}}};
  };
  const auto is_inner = [&](Schemas others) {
    Schemas own = inner;
    std::ranges::sort(own);
    std::ranges::sort(others);
    return own == others;
  };
  for (const Json* schema : schemas) {
    for (const std::string& name : required_of({schema})) {
      if (is_inner(property_of(schemas, name).schemas)) return blame(*schema, "required", name);
    }
  }
  for (const char* const keyword : {"minItems", "minProperties", "items", "prefixItems"}) {
    for (const Json* schema : schemas) {
      if (schema->is_object() && may_exclude(*schema, keyword)) return blame(*schema, keyword, "");
    }
  }
  return blame(*schemas.front(), "", "");
}

}  // namespace heddle::grammar
