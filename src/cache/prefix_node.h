// SPDX-License-Identifier: Apache-2.0
// PrefixNode: one edge of the prefix tree, with what belongs to it. Plain data; PrefixTree keeps it
// consistent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <heddle/request.h>

#include "cache/eviction_order.h"
#include "cache/use_count.h"
#include "request/prefix_hashes.h"

namespace heddle::cache {

struct PrefixPage {
  int32_t id = 0;
  uint32_t generation = 0;  // of the id when the tree took it

  // False: the page is that of a node further up. The sequence that gave the page to that node
  // wrote on in it, and meanwhile another sequence put a page of its own between the two.
  bool owned = true;
};

struct PrefixState {
  int32_t slot = 0;  // 0: none
  uint32_t generation = 0;
  bool keeps_hidden = false;
  bool middle = false;   // PrefixInsertion::middle, until somebody resumes or ends here
  int64_t num_uses = 0;  // sequences that ended or resumed here; 1 is the one that brought it
};

struct PrefixNode {
  PrefixNode* parent = nullptr;             // null: a root
  const std::string* name_space = nullptr;  // of a root: its name
  uint64_t serial = 0;
  request::PrefixHash hash;  // of the tokens from the root to the end of the edge

  int64_t begin = 0;            // tokens before the edge
  std::vector<TokenId> tokens;  // of the edge; a root has none
  int64_t first_page = 0;       // the index, counted from the first token of the path, of pages[0]
  std::vector<PrefixPage> pages;
  PrefixState state;
  std::vector<std::unique_ptr<PrefixNode>> children;  // ascending by their first token

  int64_t locks = 0;        // on this node and below it
  int64_t state_locks = 0;  // on the state of this node

  uint64_t kv_used = 0;  // when a sequence last passed, on the tree's clock
  UseCount kv_uses;
  UseCount state_uses;

  std::optional<VictimKey> kv_place;     // in the order of leaves
  std::optional<VictimKey> state_place;  // in the order of states
  std::optional<VictimKey> age_place;    // in the order of middle states by age

  [[nodiscard]] int64_t depth() const { return begin + static_cast<int64_t>(tokens.size()); }

  [[nodiscard]] bool is_root() const { return parent == nullptr; }

  [[nodiscard]] bool is_leaf() const { return children.empty(); }

  [[nodiscard]] bool has_state() const { return state.slot != 0; }

  [[nodiscard]] int64_t end_page() const { return first_page + static_cast<int64_t>(pages.size()); }

  [[nodiscard]] int64_t num_owned_pages() const {
    // Only a first page can be somebody else's.
    return static_cast<int64_t>(pages.size()) - (!pages.empty() && !pages.front().owned ? 1 : 0);
  }

  // The position of the child whose edge begins with `token`, or where it would stand.
  [[nodiscard]] auto child_position(TokenId token) {
    return std::lower_bound(children.begin(), children.end(), token,
                            [](const std::unique_ptr<PrefixNode>& child, TokenId wanted) {
                              return child->tokens.front() < wanted;
                            });
  }

  [[nodiscard]] PrefixNode* find_child(TokenId token) {
    const auto position = child_position(token);
    return position != children.end() && (*position)->tokens.front() == token ? position->get()
                                                                              : nullptr;
  }
};

// The nearest node above that has a state; null if there is none.
[[nodiscard]] inline const PrefixNode* state_above(const PrefixNode& node) {
  const PrefixNode* above = node.parent;
  while (above != nullptr && !above->has_state()) above = above->parent;
  return above;
}

}  // namespace heddle::cache
