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

const OpRegistry& builtin_ops() {
  static const OpRegistry kRegistry = [] {
    OpRegistry registry;
    registry.add(adapter_ops());
    registry.add(attention_ops());
    registry.add(collective_ops());
    registry.add(elementwise_ops());
    registry.add(embedding_ops());
    registry.add(weighted_rows_ops());
    registry.add(place_rows_ops());
    registry.add(gemm_ops());
    registry.add(layout_ops());
    registry.add(linear_attention_ops());
    registry.add(moe_ops());
    registry.add(norm_ops());
    registry.add(layer_norm_ops());
    registry.add(rope_ops());
    return registry;
  }();
  return kRegistry;
}

}  // namespace heddle::ops
