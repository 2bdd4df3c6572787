// SPDX-License-Identifier: Apache-2.0
#include "graph/chains.h"

#include <algorithm>

namespace heddle::graph {

namespace {

bool begins_at(const Graph& graph, const UseCounts& uses, size_t begin, const ops::OpChain& chain) {
  if (begin + chain.ops.size() > graph.nodes.size()) return false;
  const std::span<const Node> nodes = std::span(graph.nodes).subspan(begin, chain.ops.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op->name != chain.ops[i]) return false;
  }
  for (const ops::OpChain::Link& link : chain.links) {
    const Node& writer = nodes[static_cast<size_t>(link.from)];
    const Value linked = writer.outputs[static_cast<size_t>(link.output)];
    const Node& reader = nodes[static_cast<size_t>(link.to)];
    if (reader.inputs[static_cast<size_t>(link.input)] != linked) return false;
    if (!link.shared && uses.num_uses[linked.id] != 1) return false;
  }
  return true;
}

}  // namespace

std::vector<Chain> find_chains(const Graph& graph, std::span<const ops::OpChain> known) {
  const UseCounts uses = count_uses(graph);
  std::vector<Chain> chains;
  for (size_t i = 0; i < graph.nodes.size();) {
    const auto found = std::ranges::find_if(
        known, [&](const ops::OpChain& chain) { return begins_at(graph, uses, i, chain); });
    if (found == known.end()) {
      ++i;
      continue;
    }
    chains.push_back({.begin = i, .ops = &*found});
    i = chains.back().end();
  }
  return chains;
}

}  // namespace heddle::graph
