// SPDX-License-Identifier: Apache-2.0
// find_chains: finds runs of nodes in a program that the device can launch together
// (ops/op_chain.h).
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "ops/op_chain.h"

namespace heddle::graph {

// The nodes [begin, begin + ops->ops.size()).
struct Chain {
  size_t begin = 0;
  const ops::OpChain* ops = nullptr;

  [[nodiscard]] size_t end() const { return begin + ops->ops.size(); }
};

// Finds chains, sorted and without overlap. If several of `known` match at a node, the first one is
// used. A link, the value between two nodes of a chain, is read by no node outside the chain and is
// no output of the graph, unless the chain shares it.
std::vector<Chain> find_chains(const Graph& graph, std::span<const ops::OpChain> known);

}  // namespace heddle::graph
