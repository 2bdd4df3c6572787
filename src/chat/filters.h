// SPDX-License-Identifier: Apache-2.0
// The filters of the template language: value|name(arguments).
//
// Filters that Jinja makes lazy (map, select, ...) compute at once here, but their result behaves
// like a generator: true even when empty, and used up by one pass.
#pragma once

#include <string_view>

#include <heddle/status.h>

#include "chat/arguments.h"
#include "chat/value.h"

namespace heddle::chat {

// Error: kInvalidArgument for an input or arguments the filter does not take, or the budget.
using FilterFunction = Result<Value> (*)(Budget* budget, const Value& input,
                                         const Arguments& arguments);

// By name, or nullptr.
[[nodiscard]] FilterFunction find_filter(std::string_view name);

// The families, each in its own file.
[[nodiscard]] FilterFunction find_text_filter(std::string_view name);
[[nodiscard]] FilterFunction find_number_filter(std::string_view name);
[[nodiscard]] FilterFunction find_sequence_filter(std::string_view name);
[[nodiscard]] FilterFunction find_selection_filter(std::string_view name);
[[nodiscard]] FilterFunction find_json_filter(std::string_view name);

}  // namespace heddle::chat
