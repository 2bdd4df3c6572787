// SPDX-License-Identifier: Apache-2.0
// The arguments of a call, and their match with a function's parameter names.
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

// Parameters in declared order, each with its argument or nothing. Points into the Arguments it
// came from.
class BoundArguments {
 public:
  // `function` is for messages; the first `num_required` parameters must be given.
  // Error: kInvalidArgument for a missing, unknown, repeated or surplus argument.
  static Result<BoundArguments> bind(const Arguments& arguments, std::string_view function,
                                     std::initializer_list<std::string_view> parameters,
                                     size_t num_required = 0);

  [[nodiscard]] const Value* get(size_t index) const { return values_[index]; }

  // True when the argument is given and is neither undefined nor None.
  [[nodiscard]] bool has(size_t index) const {
    return values_[index] != nullptr && !values_[index]->is_none() &&
           !values_[index]->is_undefined();
  }

  // Conversions with a default for an absent argument. Error: an argument of another type.
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

}  // namespace heddle::chat
