// SPDX-License-Identifier: Apache-2.0
// PrefixGroups: the order of dfs-weight. Requests that end in the same part of the prefix tree come
// together, so that what one of them needs is still cached when the next one runs.
//
// weight(node) = requests that end at the node + the weights of its children. From the root:
// children by descending weight (ties: the one below which the smallest arrival is), each with all
// that is below it; after the children, the requests that end at the node itself.
//
// Threading: thread-confined. Cost: O(n * depth + nodes log nodes); allocates nothing once grown.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "scheduler/waiting.h"

namespace heddle::scheduler {

// What the policy must know of the tree. PrefixTree answers it with one pointer.
class PrefixShape {
 public:
  virtual ~PrefixShape() = default;

  // The node above; null for a node right below the root. Never asked about null.
  [[nodiscard]] virtual const void* parent(const void* node) const = 0;
};

class PrefixGroups {
 public:
  // ranks[i] is the place of entries[i]'s node in the order: entries of the same node have the same
  // rank, to be ordered by arrival. Same sizes (checked).
  void rank(std::span<const Waiting> entries, const PrefixShape& shape, std::span<int64_t> ranks);

 private:
  struct Node {
    const void* key = nullptr;
    const void* parent_key = nullptr;
    int32_t parent = -1;
    int64_t weight = 0;
    int64_t first_arrival = std::numeric_limits<int64_t>::max();
    int64_t rank = 0;
  };

  void collect_nodes(std::span<const Waiting> entries, const PrefixShape& shape);
  [[nodiscard]] int32_t find(const void* key) const;
  void add_weights(std::span<const Waiting> entries);
  void order_siblings();

  std::vector<Node> nodes_;             // the root first, then by key
  std::vector<int32_t> siblings_;       // all but the root, by parent, then in their order
  std::vector<int32_t> first_sibling_;  // of a parent's children in siblings_; one more at the end
  std::vector<int32_t> stack_;
};

}  // namespace heddle::scheduler
