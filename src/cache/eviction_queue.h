// SPDX-License-Identifier: Apache-2.0
// EvictionQueue: which nodes of the prefix tree may give something up, and in what order. Leaves
// without locks may give up their pages, and with them their state; states without locks may be
// given up alone. States in the middle of a chain are listed a second time, by age.
//
// The orders are sorted sets whose keys change only with the node, so the next victim is always at
// the front. The owner of the nodes calls update() whenever something that a key depends on has
// changed: locks, uses, children, pages, the state of the node or the nearest state above it.
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

// Nodes ordered by their keys.
class EvictionOrder {
 public:
  // Moves the node from `key` to `wanted`, adds it or removes it; `key` follows.
  void update(PrefixNode& node, std::optional<VictimKey>& key,
              const std::optional<VictimKey>& wanted);

  // Null if there is none.
  [[nodiscard]] PrefixNode* first() const {
    return nodes_.empty() ? nullptr : nodes_.begin()->second;
  }

  // The node after `index` others. Cost: O(index).
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
  // A use halves its weight every `half_life` ticks of the tree's clock.
  EvictionQueue(const PrefixTreeOptions& options, double half_life) : score_(options, half_life) {}

  // Updates the node's entries to its current contents and value.
  void update(PrefixNode& node);

  // Does so for the nearest states below the node, whose worth depends on the nearest state above.
  void update_states_below(PrefixNode& node);

  // Removes the node from all orders.
  void remove(PrefixNode& node);

  // The next to be evicted; null if there is none.
  [[nodiscard]] PrefixNode* next_leaf() const { return leaves_.first(); }

  // The node of the next state to evict after `skipped` others.
  [[nodiscard]] PrefixNode* next_state(int64_t skipped = 0) const { return states_.at(skipped); }

  [[nodiscard]] PrefixNode* oldest_middle_state(int64_t skipped = 0) const {
    return middle_states_.at(skipped);
  }

  // The leaf or state of least value; null if there is none.
  struct Victim {
    PrefixNode* node = nullptr;
    bool is_leaf = false;  // evict pages and state; otherwise only the state
  };

  [[nodiscard]] Victim next() const;

  [[nodiscard]] const EvictionScore& score() const { return score_; }

  // Proves that the orders list exactly the nodes of `tree` that may give something up, under the
  // keys that they have now, or aborts. Cost: O(nodes log nodes).
  void check_invariants(const RadixTree& tree) const;

 private:
  EvictionScore score_;
  EvictionOrder leaves_;         // without locks, by worth
  EvictionOrder states_;         // without locks, by worth
  EvictionOrder middle_states_;  // subset of states_, the oldest first
};

}  // namespace heddle::cache
