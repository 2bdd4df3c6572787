// SPDX-License-Identifier: Apache-2.0
#include "chat/callables.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::chat {

Result<BoundArguments> BoundArguments::bind(const Arguments& arguments, std::string_view function,
                                            std::initializer_list<std::string_view> parameters,
                                            size_t num_required) {
  if (arguments.positional.size() > parameters.size()) {
    return invalid_argument(fmt::format("{}() takes at most {} arguments ({} given)", function,
                                        parameters.size(), arguments.positional.size()));
  }
  BoundArguments bound;
  bound.function_ = function;
  bound.parameters_ = parameters;
  bound.values_.resize(parameters.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    bound.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) {
      return invalid_argument(
          fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    }
    const Value*& slot = bound.values_[static_cast<size_t>(found - parameters.begin())];
    if (slot != nullptr) {
      return invalid_argument(
          fmt::format("{}() got multiple values for argument '{}'", function, name));
    }
    slot = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (bound.values_[i] == nullptr) {
      return invalid_argument(
          fmt::format("{}() is missing the argument '{}'", function, bound.parameters_[i]));
    }
  }
  return bound;
}

Result<int64_t> BoundArguments::integer(size_t index, int64_t otherwise) const {
  const Value* value = values_[index];
  if (value == nullptr) return otherwise;
  if (value->is_integral()) return value->as_integer();
  if (value->is_undefined()) return invalid_argument(value->undefined_reason());
  return invalid_argument(fmt::format("{}(): '{}' must be an integer, not '{}'", function_,
                                      parameters_[index], value->type_name()));
}

Result<std::string_view> BoundArguments::text(size_t index, std::string_view otherwise) const {
  const Value* value = values_[index];
  if (value == nullptr) return otherwise;
  if (value->is_string()) return std::string_view(value->as_string());
  if (value->is_undefined()) return invalid_argument(value->undefined_reason());
  return invalid_argument(fmt::format("{}(): '{}' must be a string, not '{}'", function_,
                                      parameters_[index], value->type_name()));
}

}  // namespace heddle::chat
