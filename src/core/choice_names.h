// SPDX-License-Identifier: Apache-2.0
// ChoiceNames: the names of the values of an enum that is an option, for its to_string() and its
// parser.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <heddle/status.h>

namespace heddle {

// Pairs of a name and a value. If a value has several names, the first one is shown.
template <typename Choice, size_t kCount>
using ChoiceNames = std::array<std::pair<std::string_view, Choice>, kCount>;

template <typename Choice, size_t kCount>
std::string_view name_of(const ChoiceNames<Choice, kCount>& names, Choice choice) {
  return std::ranges::find(names, choice, &std::pair<std::string_view, Choice>::second)->first;
}

// The value with this name. Error: kInvalidArgument, with `field` and `shown_names`: "a, b or c".
template <typename Choice, size_t kCount>
Result<Choice> choice_of(const ChoiceNames<Choice, kCount>& names, std::string_view name,
                         std::string_view field, std::string_view shown_names) {
  const auto found = std::ranges::find(names, name, &std::pair<std::string_view, Choice>::first);
  if (found != names.end()) return found->second;
  return invalid_argument(fmt::format("{} \"{}\" is not known; use {}", field, name, shown_names));
}

}  // namespace heddle
