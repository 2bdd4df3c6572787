// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <utility>

#include <fmt/format.h>

namespace heddle::graph {

Value Graph::add_value(ValueInfo value) {
  values.push_back(std::move(value));
  return {static_cast<uint32_t>(values.size() - 1)};
}

std::string Graph::label(Value value) const {
  if (value.id >= values.size()) return "%?";
  const ValueInfo& details = info(value);
  if (details.name.empty()) return fmt::format("%{}", value.id);
  return fmt::format("%{} {}", value.id, details.name);
}

UseCounts count_uses(const Graph& graph) {
  UseCounts uses;
  uses.num_uses.assign(graph.values.size(), 0);
  uses.last_use.assign(graph.values.size(), -1);
  uses.producer.assign(graph.values.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Value input : graph.nodes[i].inputs) {
      ++uses.num_uses[input.id];
      uses.last_use[input.id] = static_cast<int32_t>(i);
    }
    for (const Value output : graph.nodes[i].outputs) {
      uses.producer[output.id] = static_cast<int32_t>(i);
    }
  }
  for (const Value output : graph.outputs) {
    ++uses.num_uses[output.id];
    uses.last_use[output.id] = static_cast<int32_t>(graph.nodes.size());
  }
  return uses;
}

}  // namespace heddle::graph
