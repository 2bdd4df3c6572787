// SPDX-License-Identifier: Apache-2.0
#include "ops/registry.h"

namespace heddle::ops {

void OpRegistry::add(std::span<const OpDef> ops) {
  for (const OpDef& op : ops) {
    HEDDLE_CHECK(op.infer != nullptr && op.launch != nullptr);
    const bool is_new = by_name_.emplace(op.name, &op).second;
    if (!is_new) internal::check_failed(HEDDLE_WHERE, "an op's name is its own", op.name);
  }
}

const OpDef* OpRegistry::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

}  // namespace heddle::ops
