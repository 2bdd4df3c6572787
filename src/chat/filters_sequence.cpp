// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/callables.h"
#include "chat/operators.h"
#include "chat/python_text.h"
#include "chat/text_operations.h"
#include "chat/value.h"

namespace heddle::chat {

namespace {

// The key that sort, unique, min and max compare: the item or, if given, its attribute; in lower
// case unless the comparison is case-sensitive.
Result<Value> comparison_key(Budget* budget, const Value& item, const Value* attribute,
                             bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    HEDDLE_ASSIGN_OR_RETURN(key, get_path(budget, item, *attribute));
  }
  if (case_sensitive || !key.is_string()) return key;
  HEDDLE_RETURN_IF_ERROR(budget->step(1 + static_cast<int64_t>(key.as_string().size() / 8)));
  return make_text(budget, to_lower(key.as_string()));
}

Result<std::vector<Value>> comparison_keys(Budget* budget, const std::vector<Value>& items,
                                           const Value* attribute, bool case_sensitive) {
  HEDDLE_RETURN_IF_ERROR(budget->fits(items.size() * (sizeof(Value) + 2 * sizeof(size_t))));
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    HEDDLE_ASSIGN_OR_RETURN(Value key, comparison_key(budget, item, attribute, case_sensitive));
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<Value> length(Budget* /*budget*/, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "length", {}).status());
  HEDDLE_ASSIGN_OR_RETURN(const int64_t size, length_of(input));
  return Value::integer(size);
}

Result<Value> list(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "list", {}).status());
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, iterate(budget, input));
  if (items->flavor == Flavor::kList) return Value::sequence(items);
  HEDDLE_RETURN_IF_ERROR(budget->fits(items->items.size() * sizeof(Value)));
  return make_list(budget, items->items);
}

Result<Value> first(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "first", {}).status());
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, iterate(budget, input));
  if (items->items.empty()) return Value::undefined("No first item, sequence was empty.");
  return items->items.front();
}

Result<Value> last(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "last", {}).status());
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, iterate(budget, input));
  if (items->items.empty()) return Value::undefined("No last item, sequence was empty.");
  return items->items.back();
}

Result<Value> reverse(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "reverse", {}).status());
  if (input.is_string()) {
    const Value step = Value::integer(-1);
    return get_slice(budget, input, nullptr, nullptr, &step);
  }
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, iterate(budget, input));
  HEDDLE_RETURN_IF_ERROR(budget->fits(items->items.size() * sizeof(Value)));
  return make_sequence(budget, Flavor::kGenerator,
                       std::vector<Value>(items->items.rbegin(), items->items.rend()));
}

Result<Value> join(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args, BoundArguments::bind(call, "join", {"d", "attribute"}));
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr items, iterate(budget, input));
  HEDDLE_ASSIGN_OR_RETURN(
      const Value separator,
      to_string_value(budget, args.get(0) != nullptr ? *args.get(0) : Value::string("")));
  TextWriter out(budget);
  bool is_first = true;
  for (const Value& item : items->items) {
    if (!is_first) HEDDLE_RETURN_IF_ERROR(out.append(separator.as_string()));
    is_first = false;
    if (args.has(1)) {
      HEDDLE_ASSIGN_OR_RETURN(const Value part, get_path(budget, item, *args.get(1)));
      HEDDLE_RETURN_IF_ERROR(write_str(out, part));
    } else {
      HEDDLE_RETURN_IF_ERROR(write_str(out, item));
    }
  }
  return out.finish();
}

Result<Value> items(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(call, "items", {}).status());
  if (input.is_undefined()) return make_sequence(budget, Flavor::kGenerator, {});
  if (!input.is(Kind::kDict)) return invalid_argument("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  HEDDLE_RETURN_IF_ERROR(budget->fits(input.as_dict().size() * (sizeof(Value) + sizeof(Sequence))));
  for (const auto& [key, value] : input.as_dict().entries()) {
    HEDDLE_ASSIGN_OR_RETURN(Value pair, make_sequence(budget, Flavor::kTuple, {key, value}));
    pairs.push_back(std::move(pair));
  }
  return make_sequence(budget, Flavor::kGenerator, std::move(pairs));
}

Result<Value> in_order(Budget* budget, const std::vector<Value>& values,
                       const std::vector<Value>& keys, bool descending) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<size_t> order, sorted_order(budget, keys, descending));
  std::vector<Value> sorted;
  sorted.reserve(values.size());
  for (const size_t index : order) sorted.push_back(values[index]);
  return make_list(budget, std::move(sorted));
}

// The comma-separated paths in sort's attribute; for an absent attribute one path that is None.
std::vector<Value> sort_paths(const Value* attribute) {
  if (attribute == nullptr || !attribute->is_string())
    return {attribute == nullptr ? Value::none() : *attribute};
  std::vector<Value> paths;
  std::string_view rest = attribute->as_string();
  while (true) {
    const size_t comma = rest.find(',');
    paths.push_back(Value::string(std::string(rest.substr(0, comma))));
    if (comma == std::string_view::npos) return paths;
    rest.remove_prefix(comma + 1);
  }
}

Result<Value> sort(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(
      const auto args,
      BoundArguments::bind(call, "sort", {"reverse", "case_sensitive", "attribute"}));
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr sequence, iterate(budget, input));
  const bool case_sensitive = args.flag(1, false);
  const std::vector<Value> paths = sort_paths(args.get(2));
  // As in Jinja the keys are lists, even of one part. Parts that are equal need not be comparable.
  std::vector<Value> keys;
  for (const Value& item : sequence->items) {
    std::vector<Value> parts;
    for (const Value& path : paths) {
      HEDDLE_ASSIGN_OR_RETURN(Value part, comparison_key(budget, item, &path, case_sensitive));
      parts.push_back(std::move(part));
    }
    HEDDLE_ASSIGN_OR_RETURN(Value key, make_list(budget, std::move(parts)));
    keys.push_back(std::move(key));
  }
  return in_order(budget, sequence->items, keys, args.flag(0, false));
}

Result<Value> dictsort(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(
      const auto args, BoundArguments::bind(call, "dictsort", {"case_sensitive", "by", "reverse"}));
  if (input.is_undefined()) return invalid_argument(input.undefined_reason());
  if (!input.is(Kind::kDict)) {
    return invalid_argument(
        fmt::format("dictsort: a dict is required, not '{}'", input.type_name()));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string_view by, args.text(1, "key"));
  if (by != "key" && by != "value")
    return invalid_argument("You can only sort by either \"key\" or \"value\"");
  const Value position = Value::integer(by == "key" ? 0 : 1);
  HEDDLE_ASSIGN_OR_RETURN(const Value pairs, items(budget, input, {}));
  const std::vector<Value>& entries = pairs.as_sequence()->items;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                          comparison_keys(budget, entries, &position, args.flag(0, false)));
  return in_order(budget, entries, keys, args.flag(2, false));
}

Result<Value> unique(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "unique", {"case_sensitive", "attribute"}));
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr sequence, iterate(budget, input));
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<Value> keys,
      comparison_keys(budget, sequence->items, args.get(1), args.flag(0, false)));
  const auto before = [](const Value* a, const Value* b) { return compare_keys(*a, *b) < 0; };
  std::set<const Value*, decltype(before)> seen(before);
  std::vector<Value> kept;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!is_valid_key(keys[i])) {
      return invalid_argument(
          fmt::format("unique: strings, numbers, booleans or none are required, not '{}'",
                      keys[i].type_name()));
    }
    HEDDLE_RETURN_IF_ERROR(budget->step());
    if (seen.insert(&keys[i]).second) kept.push_back(sequence->items[i]);
  }
  return make_sequence(budget, Flavor::kGenerator, std::move(kept));
}

template <bool kLargest>
Result<Value> extreme(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "min/max", {"case_sensitive", "attribute"}));
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr sequence, iterate(budget, input));
  if (sequence->items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  HEDDLE_ASSIGN_OR_RETURN(
      const std::vector<Value> keys,
      comparison_keys(budget, sequence->items, args.get(1), args.flag(0, false)));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool better, kLargest ? less(budget, keys[best], keys[i])
                                                        : less(budget, keys[i], keys[best]));
    if (better) best = i;
  }
  return sequence->items[best];
}

Result<Value> sum(Budget* budget, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "sum", {"attribute", "start"}));
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr sequence, iterate(budget, input));
  Value total = args.get(1) != nullptr ? *args.get(1) : Value::integer(0);
  for (const Value& item : sequence->items) {
    HEDDLE_RETURN_IF_ERROR(budget->step());
    Value part = item;
    if (args.has(0)) {
      HEDDLE_ASSIGN_OR_RETURN(part, get_path(budget, item, *args.get(0)));
    }
    HEDDLE_ASSIGN_OR_RETURN(total, arithmetic(budget, Arithmetic::kAdd, total, part));
  }
  return total;
}

Result<Value> default_value(Budget* /*budget*/, const Value& input, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "default", {"default_value", "boolean"}));
  const bool absent = input.is_undefined() || (args.flag(1, false) && !input.truthy());
  if (!absent) return input;
  return args.get(0) != nullptr ? *args.get(0) : Value::string("");
}

// ---- Filters that apply other filters and tests to each item ----

Result<Value> generated(Budget* budget, std::vector<Value> items) {
  return make_sequence(budget, Flavor::kGenerator, std::move(items));
}

Result<Value> map_attribute(Budget* budget, const Sequence& sequence, const Arguments& call) {
  HEDDLE_ASSIGN_OR_RETURN(const auto args,
                          BoundArguments::bind(call, "map", {"attribute", "default"}, 1));
  std::vector<Value> mapped;
  for (const Value& item : sequence.items) {
    HEDDLE_ASSIGN_OR_RETURN(Value value, get_path(budget, item, *args.get(0), args.get(1)));
    mapped.push_back(std::move(value));
  }
  return generated(budget, std::move(mapped));
}

Result<Value> map(Budget* budget, const Value& input, const Arguments& call) {
  if (!input.truthy())
    return generated(budget, {});  // the input may also be None or false, which cannot be iterated
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr sequence, iterate(budget, input));
  HEDDLE_RETURN_IF_ERROR(budget->fits(sequence->items.size() * sizeof(Value)));
  if (call.positional.empty()) return map_attribute(budget, *sequence, call);
  if (!call.positional[0].is_string()) {
    return invalid_argument("map: the first argument must be the name of a filter");
  }
  const std::string& name = call.positional[0].as_string();
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr)
    return invalid_argument(fmt::format("map: there is no filter named {}", repr_of(name)));
  if (filter == map) return invalid_argument("map: the filter 'map' cannot be mapped");
  Arguments rest = call;
  rest.positional.erase(rest.positional.begin());
  std::vector<Value> mapped;
  for (const Value& item : sequence->items) {
    HEDDLE_RETURN_IF_ERROR(budget->step());
    HEDDLE_ASSIGN_OR_RETURN(Value value, filter(budget, item, rest));
    mapped.push_back(std::move(value));
  }
  return generated(budget, std::move(mapped));
}

// With kByAttribute the first argument is the attribute to test; otherwise the item itself is
// tested. The next argument is the name of the test, by default truth; further arguments are passed
// to it.
template <bool kByAttribute, bool kKeep>
Result<Value> choose(Budget* budget, const Value& input, const Arguments& call) {
  if (!input.truthy())
    return generated(budget, {});  // the input may also be None or false, which cannot be iterated
  HEDDLE_ASSIGN_OR_RETURN(const SequencePtr sequence, iterate(budget, input));
  Arguments rest = call;
  Value attribute;
  if (kByAttribute) {
    if (rest.positional.empty()) {
      return invalid_argument("selectattr/rejectattr: the name of an attribute is missing");
    }
    attribute = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  PredicateFunction predicate = nullptr;
  if (!rest.positional.empty()) {
    const Value name = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    if (!name.is_string())
      return invalid_argument("select/reject: the name of the test must be a string");
    predicate = find_predicate(name.as_string());
    if (predicate == nullptr) {
      return invalid_argument(
          fmt::format("select/reject: there is no test named {}", repr_of(name.as_string())));
    }
  } else if (!rest.named.empty()) {
    return invalid_argument("select/reject: keyword arguments need the name of a test before them");
  }
  std::vector<Value> chosen;
  for (const Value& item : sequence->items) {
    HEDDLE_RETURN_IF_ERROR(budget->step());
    Value subject = item;
    if (kByAttribute) {
      HEDDLE_ASSIGN_OR_RETURN(subject, get_path(budget, item, attribute));
    }
    bool passes = false;
    if (predicate == nullptr) {
      passes = subject.truthy();
    } else {
      HEDDLE_ASSIGN_OR_RETURN(passes, predicate(budget, subject, rest));
    }
    if (passes == kKeep) chosen.push_back(item);
  }
  return generated(budget, std::move(chosen));
}

constexpr std::array<std::pair<std::string_view, FilterFunction>, 21> kSequenceFilters = {{
    {"length", length},
    {"count", length},
    {"list", list},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"join", join},
    {"items", items},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"default", default_value},
    {"d", default_value},
    {"map", map},
    {"select", choose<false, true>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<true, false>},
}};

FilterFunction find_sequence_filter(std::string_view name) {
  for (const auto& [known, function] : kSequenceFilters) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  for (const auto find_in_family : {find_text_filter, find_sequence_filter, find_json_filter}) {
    if (const FilterFunction found = find_in_family(name)) return found;
  }
  return nullptr;
}

}  // namespace heddle::chat
