// SPDX-License-Identifier: Apache-2.0
#include "grammar/marked_text.h"

#include <array>
#include <cstdint>
#include <vector>

namespace heddle::grammar {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr auto kSpecialByte = static_cast<uint8_t>(kSpecialTokenByte);

struct Node {
  std::array<uint32_t, 256> next;
  uint32_t fallback = 0;
  uint32_t mark = kNone;  // index of the mark that is complete in this node
};

Node empty_node() {
  Node node;
  node.next.fill(kNone);
  return node;
}

std::vector<Node> search_automaton(std::span<const Mark> marks) {
  std::vector<Node> nodes = {empty_node()};
  for (uint32_t i = 0; i < marks.size(); ++i) {
    if (is_special_token(marks[i].text)) continue;
    uint32_t at = 0;
    for (const char letter : marks[i].text) {
      const auto byte = static_cast<uint8_t>(letter);
      if (nodes[at].next[byte] == kNone) {
        nodes[at].next[byte] = static_cast<uint32_t>(nodes.size());
        nodes.push_back(empty_node());
      }
      at = nodes[at].next[byte];
    }
    if (nodes[at].mark == kNone) nodes[at].mark = i;
  }
  // Breadth first, so that a node's fallback is complete before it is used.
  std::vector<uint32_t> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint32_t at = queue[i];
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = at == 0 ? 0 : nodes[nodes[at].fallback].next[byte];
      uint32_t& next = nodes[at].next[byte];
      if (next == kNone) {
        next = shorter;
        continue;
      }
      nodes[next].fallback = shorter == next ? 0 : shorter;
      if (nodes[next].mark == kNone) nodes[next].mark = nodes[nodes[next].fallback].mark;
      queue.push_back(next);
    }
  }
  return nodes;
}

}  // namespace

void add_marked_text(Nfa& nfa, NfaState from, std::span<const Mark> marks, bool may_end,
                     NfaState end) {
  const std::vector<Node> nodes = search_automaton(marks);
  std::vector<NfaState> states;
  states.reserve(nodes.size());
  for (const Node& node : nodes) {
    states.push_back(node.mark == kNone ? nfa.add_state() : marks[node.mark].target);
  }
  const NfaState special = nfa.add_state();  // state inside a special token
  for (const Mark& mark : marks) {
    if (is_special_token(mark.text)) nfa.add_text(special, mark.text.substr(1), mark.target);
  }
  for (size_t i = 0; i < nodes.size() && nfa.status().ok(); ++i) {
    if (nodes[i].mark != kNone) continue;
    if (may_end) nfa.add_empty(states[i], end);
    nfa.add_bytes(states[i], kSpecialByte, kSpecialByte, special);
    for (size_t first = 0; first < kSpecialByte;) {
      size_t last = first;
      while (last + 1 < kSpecialByte && nodes[i].next[last + 1] == nodes[i].next[first]) ++last;
      nfa.add_bytes(states[i], static_cast<uint8_t>(first), static_cast<uint8_t>(last),
                    states[nodes[i].next[first]]);
      first = last + 1;
    }
  }
  nfa.add_empty(from, states[0]);
}

}  // namespace heddle::grammar
