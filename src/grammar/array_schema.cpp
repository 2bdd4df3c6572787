// SPDX-License-Identifier: Apache-2.0
#include "grammar/array_schema.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFewItems = 8;          // larger counts use rules instead of repeated states
constexpr int64_t kMaxWrittenItems = 64;  // most required items that are written out; larger
                                          // numbers are grouped by rules
constexpr int64_t kItemsOfRule = 32;
// Most different values with uniqueItems: n values need 2^n states.
constexpr size_t kMaxUniqueValues = 8;

// The arrays that one place of a schema allows.
class ArrayForm {
 public:
  ArrayForm(SchemaPlaces& places, const Schemas& schemas)
      : places_(places), nfa_(places.nfa()), parts_(places.parts()), schemas_(schemas) {}

  void add(NfaState from, NfaState to) {
    read_bounds();
    if (min_ > max_) return;
    if (unique_ != nullptr && max_ > 1) {
      const std::optional<Schemas> values = num_prefix_ == 0 ? item_values() : std::nullopt;
      if (!values) {
        return places_.fail(
            {.at = unique_, .keyword = "uniqueItems"},
            fmt::format("supported only where items is an enum of at most {} values; leave it out",
                        kMaxUniqueValues));
      }
      return add_unique_values(from, *values, to);
    }
    if (min_ > kMaxCount) {
      return places_.fail({.at = min_at_, .keyword = "minItems"},
                          fmt::format("{} items are more than an answer can have; leave the "
                                      "keyword out",
                                      min_));
    }
    const NfaState open = nfa_.add_state();
    nfa_.add_bytes(from, '[', '[', open);
    const NfaState begin = nfa_.add_state();
    parts_.add_space(open, begin);
    add_items(begin, to);
  }

 private:
  void read_bounds() {
    for (const Json* schema : schemas_) {
      if (const auto count = schema->find("minItems"); count != schema->end()) {
        if (count_of(*count) > min_) {
          min_ = count_of(*count);
          min_at_ = schema;
        }
      }
      if (const auto count = schema->find("maxItems"); count != schema->end()) {
        max_ = std::min(max_, count_of(*count));
      }
      if (const auto prefix = schema->find("prefixItems"); prefix != schema->end()) {
        num_prefix_ = std::max(num_prefix_, static_cast<int64_t>(prefix->size()));
      }
      if (schema->value("uniqueItems", false)) unique_ = schema;
    }
  }

  // Adds the items; `at` is the state after the opening bracket and the white space.
  void add_items(NfaState at, NfaState to) {
    // Items are written out up to the point after which all further ones are alike: past the prefix
    // and minItems.
    const int64_t num_first = std::max(num_prefix_, int64_t{1});
    const int64_t num_alike = std::max(min_, num_first);
    const bool is_counted = max_ != INT64_MAX && max_ - num_alike > kFewItems;
    const int64_t num_written = max_ == INT64_MAX || is_counted ? num_alike : max_;
    for (int64_t i = 0; nfa_.status().ok(); ++i) {
      if (i >= num_first && min_ - i > kMaxWrittenItems) {
        const auto item = item_schemas(i);
        if (!item) break;
        at = add_items_of_rules(at, places_.rule(*item), min_ - i);
        i = min_;
      }
      if (i >= min_) nfa_.add_bytes(at, ']', ']', to);
      if (i == max_) break;
      if (is_counted && i == num_written) {
        const auto item = item_schemas(i);
        if (!item) break;
        const NfaState rest = nfa_.add_state();
        nfa_.add_call(at, more_items_rule(places_.rule(*item), max_ - i), rest);
        nfa_.add_bytes(rest, ']', ']', to);
        break;
      }
      const NfaState next = i == num_written ? at : nfa_.add_state();
      NfaState begin = at;
      if (i > 0) {
        begin = nfa_.add_state();
        parts_.add_comma(at, begin);
      }
      const NfaState after = nfa_.add_state();
      if (const auto item = item_schemas(i)) nfa_.add_call(begin, places_.rule(*item), after);
      parts_.add_space(after, next);
      if (i == num_written) break;
      at = next;
    }
  }

  // Adds exactly `count` items, each after a comma, with rules for 32, 32 * 32 ... items.
  NfaState add_items_of_rules(NfaState at, RuleId item, int64_t count) {
    RuleId rule = nfa_.add_rule("an item of a list");
    const Nfa::Rule one = nfa_.rules()[rule];
    const NfaState begin = nfa_.add_state();
    const NfaState end = nfa_.add_state();
    parts_.add_comma(one.begin, begin);
    nfa_.add_call(begin, item, end);
    parts_.add_space(end, one.end);
    while (true) {
      for (int64_t i = 0; i < count % kItemsOfRule; ++i) {
        const NfaState next = nfa_.add_state();
        nfa_.add_call(at, rule, next);
        at = next;
      }
      count /= kItemsOfRule;
      if (count == 0) return at;
      const RuleId more = nfa_.add_rule("items of a list");
      NfaState state = nfa_.rules()[more].begin;
      for (int64_t i = 0; i < kItemsOfRule; ++i) {
        const NfaState next = i + 1 == kItemsOfRule ? nfa_.rules()[more].end : nfa_.add_state();
        nfa_.add_call(state, rule, next);
        state = next;
      }
      rule = more;
    }
  }

  // A rule for up to `most` items, each after a comma.
  RuleId more_items_rule(RuleId item, int64_t most) {
    const RuleId id = nfa_.add_rule("items of a list", counter_of({.min = 0, .max = most}));
    const Nfa::Rule rule = nfa_.rules()[id];
    const NfaState comma = nfa_.add_state();
    const NfaState begin = nfa_.add_state();
    const NfaState end = nfa_.add_state();
    nfa_.add_bytes(rule.begin, ',', ',', comma, /*counts=*/true);
    parts_.add_space(comma, begin);
    nfa_.add_call(begin, item, end);
    parts_.add_space(end, rule.begin);
    nfa_.add_empty(rule.begin, rule.end);
    return id;
  }

  // The different values that items may have; nullopt if there are too many.
  std::optional<Schemas> item_values() {
    UnfoldedSchema item;
    Schemas chain;
    for (const Json* schema : item_schemas(0).value_or(Schemas{})) {
      if (!places_.unfold(*schema, chain, item)) return std::nullopt;
    }
    if (item.excluded_by != nullptr || !item.choices.empty()) return std::nullopt;
    const std::optional<Schemas> values = places_.valid_values(item.schemas);
    if (!values) return std::nullopt;
    Schemas different;
    for (const Json* value : *values) {
      const auto is_same = [&](const Json* other) { return equal_values(*value, *other); };
      if (std::ranges::none_of(different, is_same)) different.push_back(value);
      if (different.size() > kMaxUniqueValues) return std::nullopt;
    }
    return different;
  }

  // Adds arrays in which each value occurs at most once, with one state per set of values already
  // written.
  void add_unique_values(NfaState from, const Schemas& values, NfaState to) {
    std::vector<NfaState> written(size_t{1} << values.size());
    std::ranges::generate(written, [&] { return nfa_.add_state(); });
    const NfaState open = nfa_.add_state();
    nfa_.add_bytes(from, '[', '[', open);
    parts_.add_space(open, written[0]);
    for (size_t set = 0; set < written.size() && nfa_.status().ok(); ++set) {
      const int64_t count = std::popcount(set);
      if (count >= min_ && count <= max_) nfa_.add_bytes(written[set], ']', ']', to);
      if (count >= max_) continue;
      NfaState item = written[set];
      if (set != 0) {
        item = nfa_.add_state();
        parts_.add_comma(written[set], item);
      }
      for (size_t i = 0; i < values.size(); ++i) {
        if ((set >> i & 1) != 0) continue;
        const NfaState after = nfa_.add_state();
        nfa_.add_text(item, places_.spell(*values[i]), after);
        parts_.add_space(after, written[set | size_t{1} << i]);
      }
    }
  }

  // The schemas that item i must satisfy; nullopt if no such item is allowed.
  std::optional<Schemas> item_schemas(int64_t i) {
    Schemas item;
    SchemaDocument& document = places_.document();
    for (const Json* schema : schemas_) {
      const auto prefix = schema->find("prefixItems");
      const auto index = static_cast<size_t>(i);
      if (prefix != schema->end() && index < prefix->size()) {
        item.push_back(
            &document.child(*schema, "prefixItems", std::to_string(i), (*prefix)[index]));
      } else if (const auto items = schema->find("items"); items != schema->end()) {
        item.push_back(&document.child(*schema, "items", std::nullopt, *items));
      }
      if (!item.empty() && *item.back() == false) return std::nullopt;
    }
    return item;
  }

  SchemaPlaces& places_;
  Nfa& nfa_;
  JsonParts& parts_;
  const Schemas& schemas_;
  int64_t min_ = 0;
  const Json* min_at_ = nullptr;
  int64_t max_ = INT64_MAX;
  int64_t num_prefix_ = 0;
  const Json* unique_ = nullptr;  // the schema that has uniqueItems
};

}  // namespace

void add_arrays(SchemaPlaces& places, NfaState from, const Schemas& schemas, NfaState to) {
  ArrayForm(places, schemas).add(from, to);
}

}  // namespace heddle::grammar
