// SPDX-License-Identifier: Apache-2.0
#include "cache/node_states.h"

#include <unordered_set>

#include "core/check.h"

namespace heddle::cache {

void NodeStates::attach(PrefixNode& node, int32_t slot, bool keeps_hidden) {
  HEDDLE_CHECK_EQ(slots_.label(slot), node.depth());
  HEDDLE_CHECK_EQ(node.state_locks, 0);
  if (node.has_state()) {
    slots_.release(node.state.slot);
  } else {
    ++counts_.states;
    ++counts_.evictable_states;
  }
  slots_.ids().move(slot, Owner::kRequest, Owner::kTree);
  node.state.slot = slot;
  node.state.generation = slots_.ids().generation(slot);
  node.state.keeps_hidden = keeps_hidden;
}

void NodeStates::drop(PrefixNode& node) {
  check(node);
  HEDDLE_CHECK_EQ(node.state_locks, 0);
  slots_.release(node.state.slot);
  set_middle(node, false);
  node.state = {};
  --counts_.states;
  --counts_.evictable_states;
}

void NodeStates::lock(PrefixNode& node) {
  check(node);
  if (node.state_locks++ == 0) --counts_.evictable_states;
}

void NodeStates::unlock(PrefixNode& node) {
  HEDDLE_CHECK(node.state_locks > 0);
  if (--node.state_locks == 0) ++counts_.evictable_states;
}

void NodeStates::set_middle(PrefixNode& node, bool middle) {
  if (node.state.middle == middle) return;
  node.state.middle = middle;
  counts_.middle_states += middle ? 1 : -1;
}

void NodeStates::check(const PrefixNode& node) const {
  // I8: the label of a state is the depth of its node.
  HEDDLE_CHECK_EQ(slots_.label(node.state.slot), node.depth());
  // I14: the slot was not handed out again.
  HEDDLE_CHECK_EQ(slots_.ids().generation(node.state.slot), node.state.generation);
}

void NodeStates::check_invariants(const RadixTree& tree) const {
  Counts counts;
  std::unordered_set<int32_t> slots;
  tree.for_each_node([&](const PrefixNode& node) {
    if (!node.has_state()) {
      HEDDLE_CHECK_EQ(node.state_locks, 0);
      HEDDLE_CHECK(!node.state.keeps_hidden && !node.state.middle);
      return;
    }
    check(node);
    HEDDLE_CHECK(slots_.ids().owner(node.state.slot) == Owner::kTree);
    HEDDLE_CHECK(slots.insert(node.state.slot).second);  // I3: no two nodes have the same slot
    ++counts.states;
    if (node.state_locks == 0) ++counts.evictable_states;
    if (node.state.middle) ++counts.middle_states;
    // I5: every lock on a state is also a lock on its node.
    int64_t locks_below = 0;
    for (const auto& child : node.children) locks_below += child->locks;
    HEDDLE_CHECK_GE(node.locks - locks_below, node.state_locks);
  });
  // I4, I11: the counters agree with the nodes, and the pool agrees with the counters.
  HEDDLE_CHECK_EQ(counts_.states, counts.states);
  HEDDLE_CHECK_EQ(counts_.evictable_states, counts.evictable_states);
  HEDDLE_CHECK_EQ(counts_.middle_states, counts.middle_states);
  HEDDLE_CHECK_EQ(slots_.ids().count(Owner::kTree), counts_.states);
  slots_.check_invariants();
}

}  // namespace heddle::cache
