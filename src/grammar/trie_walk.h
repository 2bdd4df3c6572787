// SPDX-License-Identifier: Apache-2.0
// TrieWalk: follows the tokens of a trie through a grammar; tokens with a common prefix are
// followed together.
//
// Threading: thread-compatible; allocates nothing once its vectors have grown.
#pragma once

#include <array>
#include <cstdint>

#include "grammar/stack_machine.h"
#include "grammar/token_trie.h"
#include "grammar/vocabulary_masks.h"

namespace heddle::grammar {

class TrieWalk {
 public:
  // The places at which the walk begins; the caller sets them before run().
  [[nodiscard]] StackMachine::Places& start() { return levels_[0]; }

  // Visits the nodes below `root` that the grammar allows, without `root`: calls visit(index,
  // places) for each, with the grammar's places after the node's byte. Returns false if a place was
  // dropped because there were too many.
  template <typename Visit>
  bool run(StackMachine& machine, const TokenTrie& trie, uint32_t root, const Visit& visit) {
    return run_nodes(machine, trie, root + 1, trie.nodes()[root].end, visit);
  }

  // As run(), for `child` and the nodes below it; starts before the child's byte.
  template <typename Visit>
  bool run_below(StackMachine& machine, const TokenTrie& trie, uint32_t child, const Visit& visit) {
    return run_nodes(machine, trie, child, trie.nodes()[child].end, visit);
  }

 private:
  template <typename Visit>
  bool run_nodes(StackMachine& machine, const TokenTrie& trie, uint32_t begin, uint32_t end,
                 const Visit& visit) {
    const auto& nodes = trie.nodes();
    bool is_complete = !levels_[0].too_many;
    const size_t depth = begin < end ? size_t{nodes[begin].depth} - 1 : 0;
    for (uint32_t index = begin; index < end;) {
      const TokenTrie::Node& node = nodes[index];
      const size_t level = node.depth - depth;
      machine.step(levels_[level - 1], node.byte, levels_[level]);
      is_complete = is_complete && !levels_[level].too_many;
      if (levels_[level].is_dead()) {
        index = node.end;
        continue;
      }
      visit(index, levels_[level]);
      ++index;
    }
    return is_complete;
  }

  std::array<StackMachine::Places, kMaxTokenBytes + 1> levels_;
};

}  // namespace heddle::grammar
