// SPDX-License-Identifier: Apache-2.0
#include "chat/methods.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "chat/access.h"
#include "chat/compare.h"
#include "chat/python_text.h"
#include "chat/runtime_objects.h"

namespace heddle::chat {

namespace {

constexpr std::array<std::string_view, 5> kDictMethods = {"get", "keys", "values", "items", "copy"};
constexpr std::array<std::string_view, 5> kDictChanges = {"pop", "popitem", "update", "clear",
                                                          "setdefault"};
constexpr std::array<std::string_view, 2> kSequenceMethods = {"index", "count"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "extend",  "insert", "pop",
                                                          "remove", "reverse", "sort",   "clear"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<Value> dict_view(Budget* budget, const Dict& dict, std::string_view name) {
  HEDDLE_RETURN_IF_ERROR(budget->fits(dict.size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(dict.size());
  for (const auto& [key, value] : dict.entries()) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      HEDDLE_ASSIGN_OR_RETURN(Value pair, make_sequence(budget, Flavor::kTuple, {key, value}));
      items.push_back(std::move(pair));
    }
  }
  const Flavor flavor = name == "keys"     ? Flavor::kKeys
                        : name == "values" ? Flavor::kValues
                                           : Flavor::kItems;
  return make_sequence(budget, flavor, std::move(items));
}

Result<Value> call_dict_method(Budget* budget, const Value& self, std::string_view name,
                               const Arguments& arguments) {
  if (name == "get") {
    // Python's dict.get takes no keyword arguments.
    if (!arguments.named.empty()) return invalid_argument("get() takes no keyword arguments");
    HEDDLE_ASSIGN_OR_RETURN(const auto bound,
                            BoundArguments::bind(arguments, name, {"key", "default"}, 1));
    if (const Value* found = self.as_dict().find(*bound.get(0))) return *found;
    return bound.get(1) != nullptr ? *bound.get(1) : Value::none();
  }
  HEDDLE_RETURN_IF_ERROR(BoundArguments::bind(arguments, name, {}).status());
  if (name == "copy") return self;  // immutable: a copy is the same
  return dict_view(budget, self.as_dict(), name);
}

Result<Value> call_sequence_method(Budget* budget, const Value& self, std::string_view name,
                                   const Arguments& arguments) {
  HEDDLE_ASSIGN_OR_RETURN(const auto bound, BoundArguments::bind(arguments, name, {"value"}, 1));
  const std::vector<Value>& items = self.as_sequence()->items;
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool same, equal(budget, items[i], *bound.get(0)));
    if (same && name == "index") return Value::integer(static_cast<int64_t>(i));
    count += same ? 1 : 0;
  }
  if (name == "index") {
    return invalid_argument(fmt::format("index(): the value is not in the {}", self.type_name()));
  }
  return Value::integer(count);
}

Result<Value> call_loop_method(Budget* budget, LoopState& loop, std::string_view name,
                               const Arguments& arguments) {
  if (!arguments.named.empty()) {
    return invalid_argument(fmt::format("loop.{}() takes no keyword arguments", name));
  }
  if (name == "cycle") {
    if (arguments.positional.empty())
      return invalid_argument("loop.cycle() needs at least one value");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  bool changed =
      loop.last_changed.size() != arguments.positional.size() || loop.last_changed.empty();
  for (size_t i = 0; i < arguments.positional.size() && !changed; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const bool same,
                            equal(budget, loop.last_changed[i], arguments.positional[i]));
    changed = !same;
  }
  loop.last_changed = arguments.positional;
  return Value::boolean(changed);
}

}  // namespace

MethodKind find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString:
      return find_string_method(name) != nullptr ? MethodKind::kCallable : MethodKind::kNone;
    case Kind::kDict:
      if (is_one_of(kDictMethods, name)) return MethodKind::kCallable;
      return is_one_of(kDictChanges, name) ? MethodKind::kForbidden : MethodKind::kNone;
    case Kind::kSequence: {
      const Flavor flavor = self.as_sequence()->flavor;
      if (flavor <= Flavor::kRange && is_one_of(kSequenceMethods, name))
        return MethodKind::kCallable;
      return flavor == Flavor::kList && is_one_of(kListChanges, name) ? MethodKind::kForbidden
                                                                      : MethodKind::kNone;
    }
    default:
      return MethodKind::kNone;
  }
}

Result<Value> call_method(Budget* budget, const BoundMethod& method, const Arguments& arguments) {
  const Value& self = method.self;
  if (self.is_string()) return find_string_method(method.name)(budget, self, arguments);
  if (self.is(Kind::kDict)) return call_dict_method(budget, self, method.name, arguments);
  if (self.is(Kind::kSequence)) return call_sequence_method(budget, self, method.name, arguments);
  return call_loop_method(budget, *self.as_loop(), method.name, arguments);
}

}  // namespace heddle::chat
