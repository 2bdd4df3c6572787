// SPDX-License-Identifier: Apache-2.0
#include "graph/dead_code.h"

#include <algorithm>
#include <utility>

namespace heddle::graph {

Graph remove_dead_code(Graph graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Value output : graph.outputs) needed[output.id] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    keep[i] = (node.op->effects & ops::kWritesState) != 0 ||
              std::ranges::any_of(node.outputs, [&](Value value) { return needed[value.id]; });
    if (!keep[i]) continue;
    for (const Value input : node.inputs) needed[input.id] = true;
  }
  std::vector<Node> live;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (keep[i]) live.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(live);
  return graph;
}

}  // namespace heddle::graph
