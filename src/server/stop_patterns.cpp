// SPDX-License-Identifier: Apache-2.0
#include "server/stop_patterns.h"

#include <fmt/format.h>

namespace heddle::server {

std::optional<ApiError> StopPatterns::add(SamplingFields& fields) {
  const std::string& name = fields.stop_regex_name;
  size_t num_states = 0;
  for (size_t i = 0; i < fields.stop_regexes.size(); ++i) {
    const std::string& regex = fields.stop_regexes[i];
    auto known = compiled_.find(regex);
    if (known == compiled_.end()) {
      if (compiled_.size() == kMostInCall) {
        return invalid_value(name, fmt::format("`{}` has more than {} different patterns in one "
                                               "call; send the prompts in several.",
                                               name, kMostInCall));
      }
      auto pattern = StopPattern::compile(regex);
      if (!pattern.ok()) {
        return invalid_value(
            name, fmt::format("`{}`, number {}: {}.", name, i + 1, pattern.status().message()));
      }
      known = compiled_.emplace(regex, *std::move(pattern)).first;
    }
    num_states += known->second->num_states();
    if (num_states > StopPattern::kMaxStates) {
      return invalid_value(name, fmt::format("`{}` has patterns of more than {} states together; "
                                             "use fewer, or smaller repeat counts.",
                                             name, StopPattern::kMaxStates));
    }
    fields.stop.patterns.push_back(known->second);
  }
  return std::nullopt;
}

}  // namespace heddle::server
