// SPDX-License-Identifier: Apache-2.0
// NodeStates: the recurrent states of the nodes of the prefix tree. The state of a node is the
// state after exactly the tokens of the node's path, so its slot's label is the node's depth.
//
// Ownership:  attaching a slot moves it from Owner::kRequest to Owner::kTree; dropping the state
//             frees it. A locked state is neither dropped nor replaced.
// Threading:  confined to the engine thread.
// Invariants: check_invariants() checks I8, the slots' part of I3, I4, I11 and I14, and the state
//             locks of I5 (the list is in prefix_tree.h).
#pragma once

#include <cstdint>

#include "cache/prefix_node.h"
#include "cache/radix_tree.h"
#include "cache/state_allocator.h"

namespace heddle::cache {

class NodeStates {
 public:
  struct Counts {
    int64_t states = 0;  // all states; the next two count some of them
    int64_t evictable_states = 0;
    int64_t middle_states = 0;
  };

  // `slots` outlives the object.
  explicit NodeStates(StateAllocator& slots) : slots_(slots) {}

  NodeStates(const NodeStates&) = delete;
  NodeStates& operator=(const NodeStates&) = delete;

  // Makes `slot` the state of the node. The slot's label must be the node's depth and its owner a
  // request (both checked). A state that the node already has is freed; it must not be locked
  // (checked).
  void attach(PrefixNode& node, int32_t slot, bool keeps_hidden);

  // Frees the node's state, which must not be locked (checked).
  void drop(PrefixNode& node);

  void lock(PrefixNode& node);
  void unlock(PrefixNode& node);

  void set_middle(PrefixNode& node, bool middle);

  // Checks that the node's slot still holds the state that was attached; aborts if not.
  void check(const PrefixNode& node) const;

  [[nodiscard]] const Counts& counts() const { return counts_; }

  // Checks the invariants for the nodes of `tree`; aborts if one is broken. Cost: O(nodes).
  void check_invariants(const RadixTree& tree) const;

 private:
  StateAllocator& slots_;
  Counts counts_;
};

}  // namespace heddle::cache
