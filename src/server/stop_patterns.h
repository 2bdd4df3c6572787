// SPDX-License-Identifier: Apache-2.0
// StopPatterns: what the `stop_regex` of a call's prompts compile to, each once.
//
// Threading: thread-confined, to a worker.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <heddle/stop_pattern.h>

#include "server/api_error.h"
#include "server/sampling_fields.h"

namespace heddle::server {

class StopPatterns {
 public:
  static constexpr size_t kMostInCall = 64;  // different ones

  // Adds those of `fields` to its stop conditions. Cost: StopPattern::compile() for each that was
  // not met before. Error: invalid_value, in the words of the compiler.
  std::optional<ApiError> add(SamplingFields& fields);

 private:
  std::map<std::string, std::shared_ptr<const StopPattern>, std::less<>> compiled_;
};

}  // namespace heddle::server
