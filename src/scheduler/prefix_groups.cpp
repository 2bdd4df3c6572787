// SPDX-License-Identifier: Apache-2.0
#include "scheduler/prefix_groups.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "core/check.h"

namespace heddle::scheduler {

void PrefixGroups::rank(std::span<const Waiting> entries, const PrefixShape& shape,
                        std::span<int64_t> ranks) {
  HEDDLE_CHECK_EQ(entries.size(), ranks.size());
  collect_nodes(entries, shape);
  add_weights(entries);
  order_siblings();

  // Children before their parent is the reverse of: the parent, then its children from the last.
  auto place = static_cast<int64_t>(nodes_.size());
  stack_.assign(1, 0);
  while (!stack_.empty()) {
    const auto node = static_cast<size_t>(stack_.back());
    stack_.pop_back();
    nodes_[node].rank = --place;
    const auto begin = siblings_.begin();
    stack_.insert(stack_.end(), begin + first_sibling_[node], begin + first_sibling_[node + 1]);
  }
  HEDDLE_CHECK_EQ(place, 0);  // every node hangs below the root
  for (size_t i = 0; i < entries.size(); ++i) {
    ranks[i] = nodes_[static_cast<size_t>(find(entries[i].match_node))].rank;
  }
}

// All nodes on the paths from the root to the entries' nodes, each once.
void PrefixGroups::collect_nodes(std::span<const Waiting> entries, const PrefixShape& shape) {
  nodes_.assign(1, Node{});
  for (const Waiting& entry : entries) {
    for (const void* key = entry.match_node; key != nullptr;) {
      const void* const parent = shape.parent(key);
      nodes_.push_back({.key = key, .parent_key = parent});
      key = parent;
    }
  }
  const auto first = nodes_.begin() + 1;
  std::sort(first, nodes_.end(),
            [](const Node& a, const Node& b) { return std::less<const void*>()(a.key, b.key); });
  nodes_.erase(
      std::unique(first, nodes_.end(), [](const Node& a, const Node& b) { return a.key == b.key; }),
      nodes_.end());
  for (auto node = nodes_.begin() + 1; node != nodes_.end(); ++node) {
    node->parent = find(node->parent_key);
  }
}

int32_t PrefixGroups::find(const void* key) const {
  if (key == nullptr) return 0;
  const auto found = std::lower_bound(nodes_.begin() + 1, nodes_.end(), key,
                                      [](const Node& node, const void* wanted) {
                                        return std::less<const void*>()(node.key, wanted);
                                      });
  HEDDLE_CHECK(found != nodes_.end() && found->key == key);
  return static_cast<int32_t>(found - nodes_.begin());
}

void PrefixGroups::add_weights(std::span<const Waiting> entries) {
  for (const Waiting& entry : entries) {
    for (int32_t index = find(entry.match_node); index >= 0;) {
      Node& node = nodes_[static_cast<size_t>(index)];
      ++node.weight;
      node.first_arrival = std::min(node.first_arrival, entry.arrival);
      index = node.parent;
    }
  }
}

void PrefixGroups::order_siblings() {
  siblings_.resize(nodes_.size() - 1);
  for (size_t i = 0; i < siblings_.size(); ++i) siblings_[i] = static_cast<int32_t>(i + 1);
  std::sort(siblings_.begin(), siblings_.end(), [this](int32_t a, int32_t b) {
    const Node& left = nodes_[static_cast<size_t>(a)];
    const Node& right = nodes_[static_cast<size_t>(b)];
    return std::tuple(left.parent, -left.weight, left.first_arrival) <
           std::tuple(right.parent, -right.weight, right.first_arrival);
  });
  first_sibling_.assign(nodes_.size() + 1, 0);
  for (const int32_t index : siblings_) {
    ++first_sibling_[static_cast<size_t>(nodes_[static_cast<size_t>(index)].parent) + 1];
  }
  for (size_t i = 1; i < first_sibling_.size(); ++i) first_sibling_[i] += first_sibling_[i - 1];
}

}  // namespace heddle::scheduler
