// SPDX-License-Identifier: Apache-2.0
#include "grammar/object_schema.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"
#include "grammar/counted_text.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

// The objects that one place of a schema allows.
class ObjectForm {
 public:
  ObjectForm(SchemaPlaces& places, const ObjectSpelling& spelling)
      : places_(places), nfa_(places.nfa()), parts_(places.parts()), spelling_(spelling) {}

  void add(NfaState from, const Schemas& schemas, NfaState to) {
    std::vector<std::string> names;
    std::unordered_set<std::string> known;
    const auto add_name = [&](const std::string& name) {
      if (known.insert(name).second) names.push_back(name);
    };
    bool has_properties = false;
    bool says_additional = false;
    for (const Json* schema : schemas) {
      says_additional = says_additional || schema->contains("additionalProperties");
      const auto properties = schema->find("properties");
      if (properties == schema->end()) continue;
      has_properties = true;
      for (const auto& [name, property] : properties->items()) add_name(name);
    }
    const std::vector<std::string> required_names = required_of(schemas);
    for (const std::string& name : required_names) add_name(name);
    const std::unordered_set<std::string> required(required_names.begin(), required_names.end());

    // The schemas of properties with other names than the listed ones.
    std::optional<Schemas> others;
    if (says_additional || (!has_properties && names.empty())) {
      others.emplace();
      for (const Json* schema : schemas) {
        const auto additional = schema->find("additionalProperties");
        if (additional == schema->end()) continue;
        if (*additional == false) {
          others.reset();
          break;
        }
        others->push_back(
            &places_.document().child(*schema, "additionalProperties", std::nullopt, *additional));
      }
    }
    if (others) {
      for (const Json* schema : schemas) {
        const std::optional<Schemas> listed = names_of(*schema);
        if (!listed) continue;
        others.reset();
        for (const Json* name : *listed) add_name(name->get<std::string>());
      }
    }
    const std::optional<int64_t> max_members = max_of(schemas, "maxProperties");
    // all members have the same schema
    const bool is_map = others && names.empty() && !spelling_.is_call;
    if (!check_property_counts(schemas, names.size(), required.size(), others && !is_map)) return;

    const NfaState open = nfa_.add_state();
    nfa_.add_text(from, spelling_.open, open);
    NfaState none = nfa_.add_state();  // state before name i if no member has been written yet
    NfaState some = nfa_.add_state();  // state before name i if at least one member has been
                                       // written
    add_inner_space(open, none);
    for (const std::string& name : names) {
      const NfaState next_none = nfa_.add_state();
      const NfaState next_some = nfa_.add_state();
      const Property property = property_of(schemas, name);
      if (!property.is_forbidden) {
        for (const Json* schema : schemas) {
          if (const auto properties = schema->find("properties"); properties != schema->end()) {
            if (const auto found = properties->find(name); found != properties->end()) {
              places_.document().child(*schema, "properties", name, *found);
            }
          }
        }
        const RuleId value = places_.rule(property.schemas);
        const NfaState key = nfa_.add_state();
        nfa_.add_empty(none, key);
        parts_.add_comma(some, key);
        const NfaState after_key = nfa_.add_state();
        if (spelling_.has_bare_keys && !spelling_.is_call && !is_bare_key(name)) {
          places_.fail(source_of(schemas, name),
                       fmt::format("the property \"{}\" cannot stand without quotes, as this "
                                   "model's calls write it; use letters, digits and _",
                                   name));
          return;
        }
        if (spelling_.is_call && !is_argument_name(name)) {
          places_.fail(
              source_of(schemas, name),
              fmt::format(
                  "the property \"{}\" cannot be named in a call of the form f(name=value); "
                  "use letters, digits and _",
                  name));
          return;
        }
        nfa_.add_text(key, spell_key(name), after_key);
        add_member_value(after_key, value, next_some);
      }
      if (!required.contains(name)) {
        nfa_.add_empty(none, next_none);
        nfa_.add_empty(some, next_some);
      }
      none = next_none;
      some = next_some;
    }
    if (others && is_map && max_members) {
      if (*max_members > 0) {
        const NfaState first = nfa_.add_state();
        add_member(none, *others, first);
        nfa_.add_call(first, more_members_rule(*others, *max_members - 1), some);
      }
    } else if (others) {
      const NfaState key = nfa_.add_state();
      nfa_.add_empty(none, key);
      parts_.add_comma(some, key);
      const NfaState after_key = nfa_.add_state();
      add_other_key(key, names, after_key);
      add_member_value(after_key, places_.rule(*others), some);
    }
    const bool may_be_empty = std::ranges::none_of(schemas, [](const Json* schema) {
      const auto min = schema->find("minProperties");
      return min != schema->end() && count_of(*min) > 0;
    });
    if (may_be_empty) nfa_.add_text(none, spelling_.close, to);
    nfa_.add_text(some, spelling_.close, to);
  }

 private:
  // Adds a member of an object that may have any names.
  void add_member(NfaState from, const Schemas& value, NfaState to) {
    const NfaState after_key = nfa_.add_state();
    add_other_key(from, {}, after_key);
    add_member_value(after_key, places_.rule(value), to);
  }

  RuleId more_members_rule(const Schemas& value, int64_t most) {
    const RuleId id = nfa_.add_rule("members of an object", counter_of({.max = most}));
    const Nfa::Rule rule = nfa_.rules()[id];
    const NfaState comma = nfa_.add_state();
    const NfaState begin = nfa_.add_state();
    nfa_.add_bytes(rule.begin, ',', ',', comma, /*counts=*/true);
    parts_.add_space(comma, begin);
    add_member(begin, value, rule.begin);
    nfa_.add_empty(rule.begin, rule.end);
    return id;
  }

  // The smallest of the schemas' values for a keyword.
  static std::optional<int64_t> max_of(const Schemas& schemas, const char* keyword) {
    std::optional<int64_t> max;
    for (const Json* schema : schemas) {
      const auto value = schema->find(keyword);
      if (value != schema->end()) max = std::min(max.value_or(INT64_MAX), count_of(*value));
    }
    return max;
  }

  bool check_property_counts(const Schemas& schemas, size_t num_names, size_t num_required,
                             bool has_others) {
    for (const Json* schema : schemas) {
      const auto min = schema->find("minProperties");
      if (min != schema->end() &&
          count_of(*min) > std::max<int64_t>(1, static_cast<int64_t>(num_required))) {
        places_.fail(
            {.at = schema, .keyword = "minProperties"},
            fmt::format("{} is more than 1 and than the {} required properties, which is not "
                        "supported; list them in required",
                        min->dump(), num_required));
        return false;
      }
      const auto max = schema->find("maxProperties");
      if (max != schema->end() && may_exclude(*schema, "maxProperties") &&
          (has_others || count_of(*max) < static_cast<int64_t>(num_names))) {
        places_.fail(
            {.at = schema, .keyword = "maxProperties"},
            "supported only where properties and additionalProperties: false allow no more, and "
            "without properties");
        return false;
      }
    }
    return true;
  }

  void add_member_value(NfaState after_key, RuleId value, NfaState to) {
    const NfaState colon = nfa_.add_state();
    const NfaState begin = nfa_.add_state();
    const NfaState end = nfa_.add_state();
    nfa_.add_text(after_key, spelling_.after_key, colon);
    if (parts_.allows_whitespace() && !spelling_.is_call) nfa_.add_bytes(colon, ' ', ' ', begin);
    nfa_.add_empty(colon, begin);
    nfa_.add_call(begin, value, end);
    add_inner_space(end, to);
  }

  [[nodiscard]] std::string spell_key(const std::string& name) const {
    return spelling_.has_bare_keys ? name : spell_json_string(name);
  }

  // Adds a key that is none of `names`. With names, each key has only one spelling (code_points.h).
  void add_other_key(NfaState from, const std::vector<std::string>& names, NfaState to) {
    if (names.empty()) {
      nfa_.add_call(from,
                    spelling_.has_bare_keys ? parts_.shared_rule("name", add_argument_name)
                                            : parts_.string_rule(),
                    to);
      return;
    }
    const Result<ByteDfa> keys = set_of([&](Nfa& nfa, NfaState begin, NfaState end) {
      if (spelling_.has_bare_keys) return add_argument_name(nfa, begin, end);
      const NfaState open = nfa.add_state();
      nfa.add_bytes(begin, '"', '"', open);
      nfa.add_dfa(open, code_points_dfa(all_code_points(), TextForm::kJsonString), open);
      nfa.add_bytes(open, '"', '"', end);
    });
    const Result<ByteDfa> known = set_of([&](Nfa& nfa, NfaState begin, NfaState end) {
      for (const std::string& name : names) nfa.add_text(begin, spell_key(name), end);
    });
    const Result<ByteDfa> rest = !keys.ok()    ? keys.status()
                                 : !known.ok() ? known.status()
                                               : keys->subtract(*known);
    if (!rest.ok()) return nfa_.fail(rest.status());
    nfa_.add_dfa(from, *rest, to);
  }

  // Adds the white space after an object's opening bracket and after its values.
  void add_inner_space(NfaState from, NfaState to) {
    spelling_.is_call ? nfa_.add_empty(from, to) : parts_.add_space(from, to);
  }

  // The schema that lists a property, or requires it, for a message.
  static SchemaDocument::Problem source_of(const Schemas& schemas, const std::string& name) {
    for (const Json* schema : schemas) {
      const auto properties = schema->find("properties");
      if (properties != schema->end() && properties->contains(name)) {
        return {.at = schema, .keyword = "properties", .name = name};
      }
    }
    for (const Json* schema : schemas) {
      const std::vector<std::string> required = required_of({schema});
      if (std::ranges::find(required, name) != required.end()) {
        return {.at = schema, .keyword = "required", .name = name};
      }
    }
    return {.at = schemas.front(), .keyword = "propertyNames"};
  }

  SchemaPlaces& places_;
  Nfa& nfa_;
  JsonParts& parts_;
  const ObjectSpelling& spelling_;
};

}  // namespace

void add_objects(SchemaPlaces& places, const ObjectSpelling& spelling, NfaState from,
                 const Schemas& schemas, NfaState to) {
  ObjectForm(places, spelling).add(from, schemas, to);
}

}  // namespace heddle::grammar
