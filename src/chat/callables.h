// SPDX-License-Identifier: Apache-2.0
// Everything a template can call by name: filters (value|name), tests (value is name) and methods
// (value.name()), with the arguments of a call. Macros and built-in functions are values
// (expression_evaluator.h, builtin_functions.h).
//
// Threading: functions without state; a budget and its values are confined to one render.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments of a call, matched with the parameters of a function: for each declared parameter
// its argument or null. Points into the Arguments from which it was made.
class BoundArguments {
 public:
  // Matches arguments with parameters. `function` is the name in messages; the first `num_required`
  // parameters are required.
  // Error: kInvalidArgument for a missing, unknown, repeated or surplus argument.
  static Result<BoundArguments> bind(const Arguments& arguments, std::string_view function,
                                     std::initializer_list<std::string_view> parameters,
                                     size_t num_required = 0);

  [[nodiscard]] const Value* get(size_t index) const { return values_[index]; }

  // Whether the argument is present and neither undefined nor None.
  [[nodiscard]] bool has(size_t index) const {
    return values_[index] != nullptr && !values_[index]->is_none() &&
           !values_[index]->is_undefined();
  }

  // Converts the argument; an absent one becomes `otherwise`. Error: the argument has another type.
  [[nodiscard]] Result<int64_t> integer(size_t index, int64_t otherwise) const;
  [[nodiscard]] Result<std::string_view> text(size_t index, std::string_view otherwise) const;

  [[nodiscard]] bool flag(size_t index, bool otherwise) const {
    return values_[index] == nullptr ? otherwise : values_[index]->truthy();
  }

 private:
  std::string function_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

// ---- Filters: value|name(arguments) ----
//
// Filters that are lazy in Jinja (map, select, ...) compute at once here, but their result behaves
// like a generator: it is true even if empty, and one iteration consumes it.

// Error: kInvalidArgument for an unsupported input or argument, or an exceeded budget.
using FilterFunction = Result<Value> (*)(Budget* budget, const Value& input,
                                         const Arguments& arguments);

// The filter of this name; nullptr if there is none.
[[nodiscard]] FilterFunction find_filter(std::string_view name);

// Filters of two groups: those for texts and numbers (filters_text.cpp), and those from and to JSON
// (json.cpp).
[[nodiscard]] FilterFunction find_text_filter(std::string_view name);
[[nodiscard]] FilterFunction find_json_filter(std::string_view name);

// ---- Tests: value is name(arguments) ----

// Error: kInvalidArgument for a subject or arguments that the test does not accept, or if the
// budget is exceeded.
using PredicateFunction = Result<bool> (*)(Budget* budget, const Value& subject,
                                           const Arguments& arguments);

// The test of this name; nullptr if there is none.
[[nodiscard]] PredicateFunction find_predicate(std::string_view name);

// ---- Methods: value.name(arguments) ----
//
// Python's methods of strings, lists and dicts, except those that change a list or dict or give
// access to anything but the data.

enum class MethodKind : uint8_t { kNone, kCallable, kForbidden };

[[nodiscard]] MethodKind find_method(const Value& self, std::string_view name);

using MethodFunction = Result<Value> (*)(Budget* budget, const Value& self,
                                         const Arguments& arguments);

// The string method of this name; nullptr if there is none. `self` must be a string.
[[nodiscard]] MethodFunction find_string_method(std::string_view name);

// Calls a method. Error: kInvalidArgument for arguments that the method does not accept.
Result<Value> call_method(Budget* budget, const BoundMethod& method, const Arguments& arguments);

}  // namespace heddle::chat
