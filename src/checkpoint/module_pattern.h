// SPDX-License-Identifier: Apache-2.0
// ModulePattern: a checkpoint's name for many modules at once, a regular expression or a shell glob
// over paths like "model.layers.0.mlp.gate_proj". Pattern and names come from untrusted files, so
// time, stack and memory of a match are bounded.
//
// Threading: values; immutable.
#pragma once

#include <memory>
#include <string_view>

#include <heddle/status.h>

namespace heddle::checkpoint {

class ModulePattern {
 public:
  // Compiles a regular expression. Cost: one compilation. Error: kInvalidArgument, with the
  // position in the pattern and the fault.
  static Result<ModulePattern> compile(std::string_view pattern);

  // Whether the pattern matches the path from its beginning, not necessarily to its end. A pattern
  // that backtracks beyond the bound matches nothing.
  [[nodiscard]] bool matches(std::string_view path) const;

 private:
  explicit ModulePattern(std::shared_ptr<const void> code) : code_(std::move(code)) {}

  std::shared_ptr<const void> code_;  // compiled by PCRE2; copies of this object share it
};

// Whether a prefix of `path` that ends at a '.' or at the path's end matches `glob`, in which '*'
// matches any text. Cost: at most the product of the two lengths.
[[nodiscard]] bool glob_matches(std::string_view glob, std::string_view path);

}  // namespace heddle::checkpoint
