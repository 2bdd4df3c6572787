// SPDX-License-Identifier: Apache-2.0
// find_chains: where a program has nodes that the device may launch together (ops/op_chain.h).
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "ops/op_chain.h"

namespace heddle::graph {

// Nodes [begin, begin + ops->ops.size()).
struct Chain {
  size_t begin = 0;
  const ops::OpChain* ops = nullptr;

  [[nodiscard]] size_t end() const { return begin + ops->ops.size(); }
};

// Ascending, apart from each other. Of several that begin at a node the first of `known` is taken.
// A chain's links are read by no other node and are no outputs of the graph, but for shared ones.
std::vector<Chain> find_chains(const Graph& graph, std::span<const ops::OpChain> known);

}  // namespace heddle::graph
