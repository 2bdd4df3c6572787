// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_schema.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "grammar/automaton.h"
#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"
#include "grammar/counted_text.h"
#include "grammar/number_range.h"
#include "grammar/pattern.h"
#include "grammar/schema_document.h"
#include "grammar/schema_keywords.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPlaces = 20000;
constexpr int64_t kMaxWritten = 10000;     // of what has states for each count
constexpr int64_t kFewItems = 8;           // of a list that are written out rather than counted
constexpr size_t kMaxAlternatives = 1024;  // of one place, with its allOf and $ref unfolded
constexpr size_t kMaxUniqueValues = 8;     // of a list with uniqueItems, which has 2^n states

class SchemaCompiler {
 public:
  SchemaCompiler(Nfa& nfa, const Json& root, const JsonSchemaOptions& options)
      : nfa_(nfa), root_(root), options_(options), document_(root) {}

  Status compile(NfaState from, NfaState to) {
    if (options_.form == ValueForm::kJson) {
      nfa_.add_call(from, rule({&root_}), to);
    } else {
      // The root may also be a value inside of itself, which is written as others.
      const RuleId arguments = nfa_.add_rule("the arguments");
      nfa_.add_call(from, arguments, to);
      queue_.push_back({.rule = arguments, .schemas = {&root_}, .objects = &kArguments});
    }
    while (!queue_.empty() && nfa_.status().ok()) {
      const Pending next = std::move(queue_.back());
      queue_.pop_back();
      num_alternatives_ = 0;
      objects_ = next.objects;
      const Nfa::Rule place = nfa_.rules()[next.rule];
      add_value(place.begin, next.schemas, place.end);
    }
    return nfa_.status();
  }

  // Where the schema cannot be kept to, if one place is to blame.
  [[nodiscard]] std::optional<SchemaDocument::Problem> problem() const {
    return document_.problem();
  }

 private:
  struct Pending {
    RuleId rule;
    Schemas schemas;
    const ObjectSpelling* objects = &kBraces;
  };

  void fail(const Json& at, std::string_view keyword, const std::string& message) {
    nfa_.fail(document_.error_at(at, keyword, message));
  }

  // False: the schemas are refused, as nfa_'s status says.
  bool unfold(const Json& schema, Schemas& chain, UnfoldedSchema& out) {
    const Status status = document_.unfold(schema, chain, out);
    if (!status.ok()) nfa_.fail(status);
    return status.ok();
  }

  RuleId rule(Schemas schemas) {
    Schemas key = schemas;  // the order of schemas decides the order of properties alone
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
        "JSON schema at \"#{}\"", schemas.empty() ? "" : document_.path_of(*schemas.front())));
    rules_.emplace(std::move(key), id);
    queue_.push_back({.rule = id, .schemas = std::move(schemas)});
    return id;
  }

  // ---- Values.

  void add_value(NfaState from, const Schemas& schemas, NfaState to) {
    UnfoldedSchema unfolded;
    Schemas chain;
    for (const Json* schema : schemas) {
      if (!unfold(*schema, chain, unfolded)) return;
    }
    add_choices(from, std::move(unfolded), to);
  }

  void add_choices(NfaState from, UnfoldedSchema unfolded, NfaState to) {
    if (!nfa_.status().ok() || unfolded.is_impossible) return;
    if (unfolded.choices.empty()) {
      add_plain(from, unfolded.schemas, to);
      return;
    }
    SchemaChoice choice = std::move(unfolded.choices.back());
    unfolded.choices.pop_back();
    for (const Json& branch : *choice.branches) {
      if (++num_alternatives_ > kMaxAlternatives) {
        fail(*unfolded.schemas.front(), "",
             fmt::format("anyOf and oneOf combine to more than {} alternatives", kMaxAlternatives));
        return;
      }
      UnfoldedSchema chosen = unfolded;
      if (!unfold(branch, choice.chain, chosen)) return;
      if (choice.beside != nullptr && !unfold(*choice.beside, choice.chain, chosen)) return;
      add_choices(from, std::move(chosen), to);
    }
  }

  void add_plain(NfaState from, const Schemas& schemas, NfaState to) {
    TypeSet types = types_of(schemas);
    if (const std::optional<Schemas> values = valid_values(schemas)) {
      if (objects_->is_call) {
        fail(*schemas.front(), "",
             "arguments of a call cannot be chosen as a whole; use properties");
      }
      for (const Json* value : *values) nfa_.add_text(from, spell(*value), to);
      return;
    }
    if (types == kAnyType) types = types_of_keywords(schemas);
    if (objects_->is_call) types &= kObject;
    const LiteralWords words = literal_words(options_.form);
    if ((types & kNull) != 0) nfa_.add_text(from, words.null_word, to);
    if ((types & kBoolean) != 0) {
      nfa_.add_text(from, words.true_word, to);
      nfa_.add_text(from, words.false_word, to);
    }
    if ((types & (kInteger | kFraction)) != 0) add_number(from, schemas, types, to);
    if ((types & kString) != 0) add_string(from, schemas, to);
    if ((types & kArray) != 0) add_array(from, schemas, to);
    if ((types & kObject) != 0) add_object(from, schemas, to);
  }

  // The values of enum and const that satisfy all else; nothing without either.
  std::optional<Schemas> valid_values(const Schemas& schemas) {
    std::optional<Schemas> values = values_of(schemas);
    if (!values) return std::nullopt;
    for (const Json* schema : schemas) {
      if (const auto problem = keep_values_within(*schema, *values)) {
        fail(*schema, problem->keyword, problem->message);
        return Schemas{};
      }
    }
    std::erase_if(*values, [&](const Json* value) { return !are_values_valid(schemas, *value); });
    return values;
  }

  [[nodiscard]] std::string spell(const Json& value) const {
    return spell_value(value, options_.form);
  }

  void add_number(NfaState from, const Schemas& schemas, TypeSet types, NfaState to) {
    NumberRange range;
    bool is_bounded = false;
    bool is_whole = (types & kFraction) == 0;
    std::vector<int> divisors;
    for (const Json* schema : schemas) {
      for (const char* const keyword :
           {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
        const auto bound = schema->find(keyword);
        if (bound == schema->end()) continue;
        const Result<Nanos> value = nanos_of(*bound);
        if (!value.ok()) {
          fail(*schema, keyword, value.status().message());
          return;
        }
        is_bounded = true;
        const std::string_view name = keyword;
        const bool excludes = name.starts_with("exclusive");
        if (name == "minimum" || name == "exclusiveMinimum") {
          if (*value > range.min || (*value == range.min && excludes)) {
            range.min = *value;
            range.excludes_min = excludes;
          }
        } else if (*value < range.max || (*value == range.max && excludes)) {
          range.max = *value;
          range.excludes_max = excludes;
        }
      }
      if (const auto divisor = schema->find("multipleOf"); divisor != schema->end()) {
        is_whole = true;
        if (*divisor != 1) divisors.push_back(divisor->get<int>());
      }
    }
    if (!is_whole) {
      if (is_bounded) {
        add_decimals(nfa_, from, range, to);
      } else {
        nfa_.add_call(from, shared_rule("number", add_any_number), to);
      }
      return;
    }
    if (divisors.empty()) {
      if (is_bounded) {
        add_integers(nfa_, from, range, to);
      } else {
        nfa_.add_call(from, shared_rule("integer", add_any_integer), to);
      }
      return;
    }
    std::optional<ByteDfa> set =
        dfa([&](Nfa& nfa, NfaState begin, NfaState end) { add_integers(nfa, begin, range, end); });
    for (const int divisor : divisors) {
      set = intersect(std::move(set), dfa([&](Nfa& nfa, NfaState begin, NfaState end) {
                        add_multiples(nfa, begin, divisor, end);
                      }));
    }
    if (set) nfa_.add_dfa(from, *set, to);
  }

  void add_string(NfaState from, const Schemas& schemas, NfaState to) {
    int64_t min = 0;
    std::optional<int64_t> max;
    std::vector<Pattern> patterns;
    const auto add_pattern = [&](Pattern pattern) {
      // A character that is repeated is a matter of lengths.
      if (const auto repeated = pattern.as_repeated(/*is_anchored=*/true)) {
        min = std::max(min, repeated->range.min);
        if (repeated->range.max) max = std::min(max.value_or(INT64_MAX), *repeated->range.max);
        if (repeated->set == all_code_points()) return;
        pattern.drop_counts();
      }
      patterns.push_back(std::move(pattern));
    };
    for (const Json* schema : schemas) {
      if (const auto length = schema->find("minLength"); length != schema->end()) {
        min = std::max(min, count_of(*length));
      }
      if (const auto length = schema->find("maxLength"); length != schema->end()) {
        max = std::min(max.value_or(INT64_MAX), count_of(*length));
      }
      if (const auto pattern = schema->find("pattern"); pattern != schema->end()) {
        Result<Pattern> parsed = Pattern::parse(pattern->get_ref<const std::string&>());
        if (!parsed.ok()) {
          fail(*schema, "pattern", parsed.status().message());
          return;
        }
        add_pattern(std::move(parsed).value());
      }
      if (const auto format = schema->find("format"); format != schema->end()) {
        const std::string_view pattern = pattern_of_format(format->get_ref<const std::string&>());
        if (!pattern.empty()) add_pattern(Pattern::parse(pattern).value());
      }
    }
    if (max && min > *max) return;
    if (min > (patterns.empty() ? kMaxCount : kMaxWritten)) {
      fail(*schemas.front(), "minLength",
           fmt::format("lengths of at least {} are not supported; leave the keyword out", min));
      return;
    }
    if (min == 0 && !max && patterns.empty()) {
      nfa_.add_call(from, string_rule(), to);
      return;
    }
    if (patterns.empty()) {
      nfa_.add_call(from, string_of_length({.min = min, .max = max}), to);
      return;
    }
    std::optional<ByteDfa> set;
    for (size_t i = 0; i < patterns.size(); ++i) {
      std::optional<ByteDfa> next = dfa([&](Nfa& nfa, NfaState begin, NfaState end) {
        patterns[i].add_search(nfa, begin, TextForm::kJsonString, end);
      });
      set = i == 0 ? std::move(next) : intersect(std::move(set), std::move(next));
    }
    if (min > 0) {
      set = intersect(std::move(set), dfa([&](Nfa& nfa, NfaState begin, NfaState end) {
                        add_written_characters(nfa, begin, all_code_points(), TextForm::kJsonString,
                                               {.min = min}, end);
                      }));
    }
    if (!set) return;
    if (max) {
      const std::string name = fmt::format("text of at most {} characters", *max);
      const auto rule = add_bounded_string(nfa_, name, *set, *max);
      if (rule) nfa_.add_call(from, *rule, to);
      return;
    }
    const NfaState open = nfa_.add_state();
    const NfaState close = nfa_.add_state();
    nfa_.add_bytes(from, '"', '"', open);
    nfa_.add_dfa(open, *set, close);
    nfa_.add_bytes(close, '"', '"', to);
  }

  RuleId string_of_length(CountRange range) {
    const std::string name = range.max ? fmt::format("{} to {} characters", range.min, *range.max)
                                       : fmt::format("at least {} characters", range.min);
    const auto found = shared_rules_.find(name);
    if (found != shared_rules_.end()) return found->second;
    const RuleId id = add_counted_string(nfa_, name, range);
    shared_rules_.emplace(name, id);
    return id;
  }

  void add_array(NfaState from, const Schemas& schemas, NfaState to) {
    int64_t min = 0;
    int64_t max = INT64_MAX;
    size_t num_prefix = 0;
    const Json* unique = nullptr;
    for (const Json* schema : schemas) {
      if (const auto count = schema->find("minItems"); count != schema->end()) {
        min = std::max(min, count_of(*count));
      }
      if (const auto count = schema->find("maxItems"); count != schema->end()) {
        max = std::min(max, count_of(*count));
      }
      if (const auto prefix = schema->find("prefixItems"); prefix != schema->end()) {
        num_prefix = std::max(num_prefix, prefix->size());
      }
      if (schema->value("uniqueItems", false)) unique = schema;
    }
    if (min > max) return;
    if (unique != nullptr && max > 1) {
      const std::optional<Schemas> values = num_prefix == 0 ? item_values(schemas) : std::nullopt;
      if (nfa_.status().ok() && !values) {
        fail(*unique, "uniqueItems",
             fmt::format("supported only where items is an enum of at most {} values; leave it out",
                         kMaxUniqueValues));
      }
      if (values) add_unique_values(from, *values, min, max, to);
      return;
    }
    if (min > kMaxWritten) {
      fail(*schemas.front(), "minItems",
           fmt::format("{} is above {}, which is not supported; leave the keyword out", min,
                       kMaxWritten));
      return;
    }
    const NfaState open = nfa_.add_state();
    nfa_.add_bytes(from, '[', '[', open);
    NfaState at = nfa_.add_state();  // after so many items, and a blank
    add_space(open, at);
    // Written out until items are alike: behind the prefix and the smallest count.
    const int64_t num_alike = std::max({min, static_cast<int64_t>(num_prefix), int64_t{1}});
    const bool is_counted = max != INT64_MAX && max - num_alike > kFewItems;
    const int64_t num_written = max == INT64_MAX || is_counted ? num_alike : max;
    for (int64_t i = 0; nfa_.status().ok(); ++i) {
      if (i >= min) nfa_.add_bytes(at, ']', ']', to);
      if (i == max) break;
      if (is_counted && i == num_written) {
        const auto schemas_of_item = item_schemas(schemas, static_cast<size_t>(i));
        if (!schemas_of_item) break;
        const NfaState rest = nfa_.add_state();
        nfa_.add_call(at, more_items_rule(rule(*schemas_of_item), max - i), rest);
        nfa_.add_bytes(rest, ']', ']', to);
        break;
      }
      const NfaState next = i == num_written ? at : nfa_.add_state();
      NfaState item = at;
      if (i > 0) {
        const NfaState comma = nfa_.add_state();
        nfa_.add_bytes(at, ',', ',', comma);
        item = nfa_.add_state();
        add_space(comma, item);
      }
      const NfaState after = nfa_.add_state();
      if (const auto schemas_of_item = item_schemas(schemas, static_cast<size_t>(i))) {
        nfa_.add_call(item, rule(*schemas_of_item), after);
      }
      add_space(after, next);
      if (i == num_written) break;
      at = next;
    }
  }

  // At most `most` items, each behind a comma.
  RuleId more_items_rule(RuleId item, int64_t most) {
    const RuleId id = nfa_.add_rule("items of a list", counter_of({.max = most}));
    const Nfa::Rule rule = nfa_.rules()[id];
    const NfaState comma = nfa_.add_state();
    const NfaState begin = nfa_.add_state();
    const NfaState end = nfa_.add_state();
    nfa_.add_bytes(rule.begin, ',', ',', comma, /*counts=*/true);
    add_space(comma, begin);
    nfa_.add_call(begin, item, end);
    add_space(end, rule.begin);
    nfa_.add_empty(rule.begin, rule.end);
    return id;
  }

  // The different values that items of a list may have, where they are few.
  std::optional<Schemas> item_values(const Schemas& schemas) {
    UnfoldedSchema item;
    Schemas chain;
    for (const Json* schema : item_schemas(schemas, 0).value_or(Schemas{})) {
      if (!unfold(*schema, chain, item)) return std::nullopt;
    }
    if (item.is_impossible || !item.choices.empty()) return std::nullopt;
    const std::optional<Schemas> values = valid_values(item.schemas);
    if (!values) return std::nullopt;
    Schemas different;
    for (const Json* value : *values) {
      const auto is_same = [&](const Json* other) { return equal_values(*value, *other); };
      if (std::ranges::none_of(different, is_same)) different.push_back(value);
      if (different.size() > kMaxUniqueValues) return std::nullopt;
    }
    return different;
  }

  // A list of `min` to `max` of the values, each at most once: a state for each set of those that
  // are written.
  void add_unique_values(NfaState from, const Schemas& values, int64_t min, int64_t max,
                         NfaState to) {
    std::vector<NfaState> written(size_t{1} << values.size());
    std::ranges::generate(written, [&] { return nfa_.add_state(); });
    const NfaState open = nfa_.add_state();
    nfa_.add_bytes(from, '[', '[', open);
    add_space(open, written[0]);
    for (size_t set = 0; set < written.size() && nfa_.status().ok(); ++set) {
      const int64_t count = std::popcount(set);
      if (count >= min && count <= max) nfa_.add_bytes(written[set], ']', ']', to);
      if (count >= max) continue;
      NfaState item = written[set];
      if (set != 0) {
        item = nfa_.add_state();
        add_comma(written[set], item);
      }
      for (size_t i = 0; i < values.size(); ++i) {
        if ((set >> i & 1) != 0) continue;
        const NfaState after = nfa_.add_state();
        nfa_.add_text(item, spell(*values[i]), after);
        add_space(after, written[set | size_t{1} << i]);
      }
    }
  }

  // The schemas that item i must satisfy; nothing where there may be none.
  std::optional<Schemas> item_schemas(const Schemas& schemas, size_t i) {
    Schemas item;
    for (const Json* schema : schemas) {
      const auto prefix = schema->find("prefixItems");
      const size_t num_prefix = prefix == schema->end() ? 0 : prefix->size();
      if (i < num_prefix) {
        item.push_back(&document_.child(*schema, fmt::format("prefixItems/{}", i), (*prefix)[i]));
      } else if (const auto items = schema->find("items"); items != schema->end()) {
        item.push_back(&document_.child(*schema, "items", *items));
      }
      if (!item.empty() && *item.back() == false) return std::nullopt;
    }
    return item;
  }

  void add_object(NfaState from, const Schemas& schemas, NfaState to) {
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

    // Other names than the known ones.
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
        others->push_back(&document_.child(*schema, "additionalProperties", *additional));
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
    const bool is_map = others && names.empty() && !objects_->is_call;  // its members are alike
    if (!check_property_counts(schemas, names.size(), required.size(), others && !is_map)) return;

    const NfaState open = nfa_.add_state();
    nfa_.add_text(from, objects_->open, open);
    NfaState none = nfa_.add_state();  // before name i, none written so far
    NfaState some = nfa_.add_state();  // the same, with some written
    add_inner_space(open, none);
    for (const std::string& name : names) {
      const NfaState next_none = nfa_.add_state();
      const NfaState next_some = nfa_.add_state();
      const Property property = property_of(schemas, name);
      if (!property.is_forbidden) {
        for (const Json* schema : schemas) {
          if (const auto properties = schema->find("properties"); properties != schema->end()) {
            if (const auto found = properties->find(name); found != properties->end()) {
              document_.child(*schema, "properties/" + name, *found);
            }
          }
        }
        const RuleId value = rule(property.schemas);
        const NfaState key = nfa_.add_state();
        nfa_.add_empty(none, key);
        add_comma(some, key);
        const NfaState after_key = nfa_.add_state();
        if (objects_->is_call && !is_argument_name(name)) {
          fail(*schemas.front(), "",
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
      add_comma(some, key);
      const NfaState after_key = nfa_.add_state();
      add_other_key(key, names, after_key);
      add_member_value(after_key, rule(*others), some);
    }
    const bool may_be_empty = std::ranges::none_of(schemas, [](const Json* schema) {
      const auto min = schema->find("minProperties");
      return min != schema->end() && count_of(*min) > 0;
    });
    if (may_be_empty) nfa_.add_text(none, objects_->close, to);
    nfa_.add_text(some, objects_->close, to);
  }

  // Of an object whose names are free.
  void add_member(NfaState from, const Schemas& value, NfaState to) {
    const NfaState after_key = nfa_.add_state();
    add_other_key(from, {}, after_key);
    add_member_value(after_key, rule(value), to);
  }

  RuleId more_members_rule(const Schemas& value, int64_t most) {
    const RuleId id = nfa_.add_rule("members of an object", counter_of({.max = most}));
    const Nfa::Rule rule = nfa_.rules()[id];
    const NfaState comma = nfa_.add_state();
    const NfaState begin = nfa_.add_state();
    nfa_.add_bytes(rule.begin, ',', ',', comma, /*counts=*/true);
    add_space(comma, begin);
    add_member(begin, value, rule.begin);
    nfa_.add_empty(rule.begin, rule.end);
    return id;
  }

  // The least of a keyword's values.
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
        fail(*schema, "minProperties",
             fmt::format("{} is more than 1 and than the {} required properties, which is not "
                         "supported; list them in required",
                         min->dump(), num_required));
        return false;
      }
      const auto max = schema->find("maxProperties");
      if (max != schema->end() &&
          (has_others || count_of(*max) < static_cast<int64_t>(num_names))) {
        fail(*schema, "maxProperties",
             "supported only where properties and additionalProperties: false allow no more, and "
             "without properties");
        return false;
      }
    }
    return true;
  }

  void add_comma(NfaState from, NfaState to) {
    const NfaState comma = nfa_.add_state();
    nfa_.add_bytes(from, ',', ',', comma);
    add_space(comma, to);
  }

  void add_member_value(NfaState after_key, RuleId value, NfaState to) {
    const NfaState colon = nfa_.add_state();
    const NfaState begin = nfa_.add_state();
    const NfaState end = nfa_.add_state();
    nfa_.add_text(after_key, objects_->after_key, colon);
    if (options_.allows_whitespace && !objects_->is_call) nfa_.add_bytes(colon, ' ', ' ', begin);
    nfa_.add_empty(colon, begin);
    nfa_.add_call(begin, value, end);
    add_inner_space(end, to);
  }

  [[nodiscard]] std::string spell_key(const std::string& name) const {
    return objects_->is_call ? name : spell_json_string(name);
  }

  // A key that is none of `names`. With names, keys have one spelling each (code_points.h).
  void add_other_key(NfaState from, const std::vector<std::string>& names, NfaState to) {
    if (names.empty()) {
      nfa_.add_call(from,
                    objects_->is_call ? shared_rule("name", add_argument_name) : string_rule(), to);
      return;
    }
    std::optional<ByteDfa> keys = dfa([&](Nfa& nfa, NfaState begin, NfaState end) {
      if (objects_->is_call) return add_argument_name(nfa, begin, end);
      const NfaState open = nfa.add_state();
      const NfaState close = nfa.add_state();
      nfa.add_bytes(begin, '"', '"', open);
      add_written_characters(nfa, open, all_code_points(), TextForm::kJsonString, {}, close);
      nfa.add_bytes(close, '"', '"', end);
    });
    const std::optional<ByteDfa> known = dfa([&](Nfa& nfa, NfaState begin, NfaState end) {
      for (const std::string& name : names) nfa.add_text(begin, spell_key(name), end);
    });
    if (!keys || !known) return;
    Result<ByteDfa> rest = keys->subtract(*known);
    if (!rest.ok()) {
      nfa_.fail(rest.status());
      return;
    }
    nfa_.add_dfa(from, *rest, to);
  }

  // After an object's opening and its values.
  void add_inner_space(NfaState from, NfaState to) {
    objects_->is_call ? nfa_.add_empty(from, to) : add_space(from, to);
  }

  // Between tokens: nothing, a blank, or a line break and its indentation.
  void add_space(NfaState from, NfaState to) {
    if (!options_.allows_whitespace) {
      nfa_.add_empty(from, to);
      return;
    }
    nfa_.add_call(from,
                  shared_rule("blank",
                              [](Nfa& nfa, NfaState begin, NfaState end) {
                                nfa.add_empty(begin, end);
                                nfa.add_bytes(begin, ' ', ' ', end);
                                NfaState state = nfa.add_state();
                                nfa.add_bytes(begin, '\n', '\n', state);
                                for (int i = 0; i < 64; ++i) {
                                  nfa.add_empty(state, end);
                                  const NfaState next = nfa.add_state();
                                  nfa.add_bytes(state, ' ', ' ', next);
                                  nfa.add_bytes(state, '\t', '\t', next);
                                  state = next;
                                }
                                nfa.add_empty(state, end);
                              }),
                  to);
  }

  // ---- Parts that many places share.

  template <typename Add>
  RuleId shared_rule(const std::string& name, const Add& add) {
    const auto found = shared_rules_.find(name);
    if (found != shared_rules_.end()) return found->second;
    const RuleId id = nfa_.add_rule(name);
    shared_rules_.emplace(name, id);
    const Nfa::Rule place = nfa_.rules()[id];
    add(nfa_, place.begin, place.end);
    return id;
  }

  RuleId string_rule() { return shared_rule("string", add_json_string); }

  template <typename Add>
  std::optional<ByteDfa> dfa(const Add& add) {
    Nfa part;
    const NfaState begin = part.add_state();
    const NfaState end = part.add_state();
    add(part, begin, end);
    return checked(ByteDfa::from_nfa(part, begin, end));
  }

  std::optional<ByteDfa> intersect(std::optional<ByteDfa> left, std::optional<ByteDfa> right) {
    if (!left || !right) return std::nullopt;
    return checked(left->intersect(*right));
  }

  std::optional<ByteDfa> checked(Result<ByteDfa> set) {
    if (set.ok()) return std::move(set).value();
    nfa_.fail(set.status());
    return std::nullopt;
  }

  Nfa& nfa_;
  const Json& root_;
  const JsonSchemaOptions options_;
  SchemaDocument document_;
  std::map<Schemas, RuleId> rules_;
  std::map<std::string, RuleId> shared_rules_;
  std::vector<Pending> queue_;
  size_t num_alternatives_ = 0;               // of the rule that is added
  const ObjectSpelling* objects_ = &kBraces;  // likewise
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
  Json schema = Json::parse(text, nullptr, false);
  if (schema.is_discarded()) return invalid_argument("the JSON schema is not valid JSON");
  return schema;
}

Status add_json_schema(Nfa& nfa, NfaState from, const Json& schema,
                       const JsonSchemaOptions& options, NfaState to) {
  return SchemaCompiler(nfa, schema, options).compile(from, to);
}

Result<WeakenedSchema> weaken_schema(Json schema, const JsonSchemaOptions& options) {
  constexpr size_t kMaxLeftOut = 100;
  WeakenedSchema result;
  while (result.left_out.size() < kMaxLeftOut) {
    if (options.check != nullptr) HEDDLE_RETURN_IF_ERROR((*options.check)());
    Nfa nfa;
    const RuleId root = nfa.add_rule("the schema");
    const Nfa::Rule place = nfa.rules()[root];
    SchemaCompiler compiler(nfa, schema, options);
    Status status = compiler.compile(place.begin, place.end);
    const auto problem = status.ok() ? std::nullopt : compiler.problem();
    if (status.ok()) {
      const Result<Automaton> automaton = Automaton::build(nfa, root);
      if (automaton.ok()) {
        result.schema = std::move(schema);
        result.num_states = automaton->num_states();
        return result;
      }
      status = automaton.status();
    }
    result.left_out.push_back(status.message());
    // A part of `schema`, unless it was made for a discriminator: then nothing changes here.
    auto* const part = problem ? const_cast<Json*>(problem->at) : nullptr;
    if (part == nullptr || (problem->keyword.empty() && part == &schema)) return result;
    if (problem->keyword.empty()) {
      *part = true;
    } else if (problem->keyword == "oneOf" && !part->contains("anyOf") &&
               (*part)["oneOf"].is_array()) {
      // Next to what it says: one branch or several.
      Json branches = std::move((*part)["oneOf"]);
      part->erase("oneOf");
      (*part)["anyOf"] = std::move(branches);
    } else {
      part->erase(problem->keyword);
    }
  }
  return result;
}

}  // namespace heddle::grammar
