// SPDX-License-Identifier: Apache-2.0
// NodeStates: the recurrent states that belong to nodes of the prefix tree. A state on a node is
// the state after exactly the tokens of the path, so its slot's label is the node's depth.
//
// Ownership:  slots go from Owner::kRequest to Owner::kTree when they are attached, and back to
//             free when the state is dropped. A locked state is neither dropped nor replaced.
// Threading:  confined to the engine thread.
// Invariants: check_invariants() proves I8, the slots' part of I3, I4, I11 and I14, and the state
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
    int64_t states = 0;  // all; the next two are subsets
    int64_t evictable_states = 0;
    int64_t middle_states = 0;
  };

  // `slots` outlives this.
  explicit NodeStates(StateAllocator& slots) : slots_(slots) {}

  NodeStates(const NodeStates&) = delete;
  NodeStates& operator=(const NodeStates&) = delete;

  // The slot's label is the node's depth and its owner a request (both checked). A state that the
  // node has is freed; it must not be locked (checked).
  void attach(PrefixNode& node, int32_t slot, bool keeps_hidden);

  // Frees the state; it is not locked (checked).
  void drop(PrefixNode& node);

  void lock(PrefixNode& node);
  void unlock(PrefixNode& node);

  void set_middle(PrefixNode& node, bool middle);

  // Proves that the node's slot still holds the state that was attached, or aborts.
  void check(const PrefixNode& node) const;

  [[nodiscard]] const Counts& counts() const { return counts_; }

  // Proves the invariants for the nodes of `tree`, or aborts. Cost: O(nodes).
  void check_invariants(const RadixTree& tree) const;

 private:
  StateAllocator& slots_;
  Counts counts_;
};

}  // namespace heddle::cache
