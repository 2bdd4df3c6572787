// SPDX-License-Identifier: Apache-2.0
// Trees for the tests of ops that read them: a node has to come out as the last token of its path
// does in a plain sequence, bit for bit.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "ops/forward_context.h"

namespace heddle::testing {

// By node, the node that it follows; -1: the last row before the tree.
using Parents = std::vector<int32_t>;

inline Parents random_parents(int64_t num_nodes, uint64_t seed) {
  std::mt19937_64 random(seed);
  Parents parents;
  for (int32_t i = 0; i < num_nodes; ++i) {
    parents.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(i + 1)) - 1);
  }
  return parents;
}

// The nodes on the path from the root to `node`.
inline std::vector<int32_t> path_to(const Parents& parents, int32_t node) {
  if (node < 0) return {};
  std::vector<int32_t> path = path_to(parents, parents[static_cast<size_t>(node)]);
  path.push_back(node);
  return path;
}

// The arrays of a step, filled sequence by sequence.
struct StepTrees {
  std::vector<int32_t> starts;
  std::vector<uint64_t> masks;
  bool any = false;

  // The last rows of the sequence are the nodes; none: it has no tree.
  void add(int64_t context_len, int64_t num_rows, const Parents& parents) {
    const int64_t num_chain = num_rows - std::ssize(parents);
    any |= !parents.empty();
    starts.push_back(parents.empty() ? ops::kNoTree
                                     : static_cast<int32_t>(context_len + num_chain));
    masks.insert(masks.end(), static_cast<size_t>(num_chain), 0);
    for (int32_t i = 0; i < std::ssize(parents); ++i) {
      uint64_t mask = 0;
      for (const int32_t node : path_to(parents, i)) mask |= uint64_t{1} << node;
      masks.push_back(mask);
    }
  }

  void set(ops::ForwardContext& forward) const {
    if (!any) return;
    forward.tree_starts = starts;
    forward.tree_masks = masks;
  }
};

}  // namespace heddle::testing
