// SPDX-License-Identifier: Apache-2.0
// How a checkpoint names many modules at once: a regular expression or a shell glob over paths like
// "model.layers.0.mlp.gate_proj". Both come from a file and are matched against names from a file,
// so neither can take more than bounded time, stack and memory.
//
// Threading: values; immutable.
#pragma once

#include <memory>
#include <string_view>

#include <heddle/status.h>

namespace heddle::checkpoint {

class ModulePattern {
 public:
  // Cost: one compilation. Error: kInvalidArgument with the place in the pattern and what is wrong.
  static Result<ModulePattern> compile(std::string_view pattern);

  // Matches from the path's beginning, not necessarily to its end. A pattern that backtracks beyond
  // the bound matches nothing.
  [[nodiscard]] bool matches(std::string_view path) const;

 private:
  explicit ModulePattern(std::shared_ptr<const void> code) : code_(std::move(code)) {}

  std::shared_ptr<const void> code_;  // compiled by PCRE2; shared by copies
};

// '*' matches any text; the match may end before a '.' of the path. Cost: at most the product of
// both lengths.
[[nodiscard]] bool glob_matches(std::string_view glob, std::string_view path);

}  // namespace heddle::checkpoint
