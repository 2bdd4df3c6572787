// SPDX-License-Identifier: Apache-2.0
// EvictionQueue: which nodes of the prefix tree have something to evict, and in what order. Leaves
// without locks can lose their pages, and with them their state. States without locks can be
// evicted alone. States in the middle of a chain are also listed by age.
//
// The orders are sorted sets whose keys change only with the node, so the next victim is always
// first. The owner of the nodes calls update() whenever something that a key depends on has
// changed: locks, uses, children, pages, the node's state or the nearest state above it.
//
// Threading:  confined to the engine thread.
// Invariants: check_invariants() proves I7 (the list is in prefix_tree.h).
// Cost:       O(log nodes) to update, O(1) to look at the next victim.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

#include "cache/eviction_score.h"
#include "cache/prefix_node.h"
#include "cache/radix_tree.h"

namespace heddle::cache {

// Nodes sorted by their keys.
class EvictionOrder {
 public:
  // Adds, moves or removes the node so that it is listed under `wanted`; sets `key`, its old key,
  // to `wanted`. No value means that the node is not listed.
  void update(PrefixNode& node, std::optional<VictimKey>& key,
              const std::optional<VictimKey>& wanted);

  // The node with the smallest key; null if there is none.
  [[nodiscard]] PrefixNode* first() const {
    return nodes_.empty() ? nullptr : nodes_.begin()->second;
  }

  // The node after the first `index` ones; null if there is none. Cost: O(index).
  [[nodiscard]] PrefixNode* at(int64_t index) const {
    return index < size() ? std::next(nodes_.begin(), index)->second : nullptr;
  }

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(nodes_.size()); }

  [[nodiscard]] bool contains(const VictimKey& key, const PrefixNode& node) const;

 private:
  std::map<VictimKey, PrefixNode*> nodes_;
};

class EvictionQueue {
 public:
  // A use loses half of its weight every `half_life` ticks of the tree's clock.
  EvictionQueue(const PrefixTreeOptions& options, double half_life) : score_(options, half_life) {}

  // Updates the node's entries in all orders to its present contents and value.
  void update(PrefixNode& node);

  // Updates the nearest states below the node: their value depends on the nearest state above them.
  void update_states_below(PrefixNode& node);

  // Removes the node from all orders.
  void remove(PrefixNode& node);

  // The leaf to evict next; null if there is none.
  [[nodiscard]] PrefixNode* next_leaf() const { return leaves_.first(); }

  // The node whose state is evicted after `skipped` others; null if there is none.
  [[nodiscard]] PrefixNode* next_state(int64_t skipped = 0) const { return states_.at(skipped); }

  [[nodiscard]] PrefixNode* oldest_middle_state(int64_t skipped = 0) const {
    return middle_states_.at(skipped);
  }

  // The leaf or state of the least value; `node` is null if there is none.
  struct Victim {
    PrefixNode* node = nullptr;
    bool is_leaf = false;  // evict the leaf's pages and state; false: evict only the state
  };

  [[nodiscard]] Victim next() const;

  [[nodiscard]] const EvictionScore& score() const { return score_; }

  // Checks that the orders list exactly the nodes of `tree` that have something to evict, under
  // their present keys; aborts if not. Cost: O(nodes log nodes).
  void check_invariants(const RadixTree& tree) const;

 private:
  EvictionScore score_;
  EvictionOrder leaves_;         // leaves without locks, by value
  EvictionOrder states_;         // states without locks, by value
  EvictionOrder middle_states_;  // the middle states of states_, the oldest first
};

}  // namespace heddle::cache
