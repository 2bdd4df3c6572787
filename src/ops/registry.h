// SPDX-License-Identifier: Apache-2.0
// OpRegistry: every op by name. builtin_ops.cpp lists the families: a new one adds a line there.
//
// Threading: immutable after construction.
#pragma once

#include <map>
#include <string_view>

#include "ops/op_def.h"

namespace heddle::ops {

class OpRegistry {
 public:
  // Aborts on a name that is taken, or an op without infer.
  void add(std::span<const OpDef> ops);

  [[nodiscard]] const OpDef* find(std::string_view name) const;  // null if there is none

  [[nodiscard]] const std::map<std::string_view, const OpDef*>& all() const { return by_name_; }

 private:
  std::map<std::string_view, const OpDef*> by_name_;
};

// All ops of this build.
const OpRegistry& builtin_ops();

}  // namespace heddle::ops
