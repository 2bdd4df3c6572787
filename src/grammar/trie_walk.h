// SPDX-License-Identifier: Apache-2.0
// TrieWalk: follows the tokens of a trie through a grammar, those that begin alike together.
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
  // Where the walk begins; filled by the caller before run().
  [[nodiscard]] StackMachine::Places& start() { return levels_[0]; }

  // Visits the nodes strictly below `root` that the grammar can follow: visit(index, places) is
  // called for each, with where the grammar stands after the node's byte. False when a place was
  // lost because there were too many.
  template <typename Visit>
  bool run(StackMachine& machine, const TokenTrie& trie, uint32_t root, const Visit& visit) {
    const auto& nodes = trie.nodes();
    bool is_complete = !levels_[0].too_many;
    for (uint32_t index = root + 1; index < nodes[root].end;) {
      const TokenTrie::Node& node = nodes[index];
      const size_t level = size_t{node.depth} - nodes[root].depth;
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

 private:
  std::array<StackMachine::Places, kMaxTokenBytes + 1> levels_;
};

}  // namespace heddle::grammar
