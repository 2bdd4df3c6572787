// SPDX-License-Identifier: Apache-2.0
// map, select, reject, selectattr, rejectattr: filters that apply other filters and tests to each
// item.
#include <array>
#include <utility>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/filters.h"
#include "chat/predicates.h"
#include "chat/python_text.h"

namespace heddle::chat {

namespace {

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
    return generated(budget, {});  // also none and false, which cannot be iterated
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

// With kByAttribute the first argument is the attribute to test, else the item itself is tested.
// The next argument names the test (whether the value is true, by default), the others go to it.
template <bool kByAttribute, bool kKeep>
Result<Value> choose(Budget* budget, const Value& input, const Arguments& call) {
  if (!input.truthy())
    return generated(budget, {});  // also none and false, which cannot be iterated
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

constexpr std::array<std::pair<std::string_view, FilterFunction>, 5> kSelectionFilters = {{
    {"map", map},
    {"select", choose<false, true>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<true, false>},
}};

}  // namespace

FilterFunction find_selection_filter(std::string_view name) {
  for (const auto& [known, function] : kSelectionFilters) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace heddle::chat
