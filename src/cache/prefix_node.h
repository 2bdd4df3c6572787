// SPDX-License-Identifier: Apache-2.0
// PrefixNode: one edge of the prefix tree and everything that belongs to it. Plain data: RadixTree
// keeps the edges and pages consistent, NodeStates the state, EvictionQueue the keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <heddle/request.h>

#include "request/prefix_hashes.h"

namespace heddle::cache {

// How often something was used, where a use is worth half as much after every half-life.
//
// All counts fade at one pace, so which of two is larger does not change while neither is used.
// log2_at_zero() relies on that: it is the count as seen from tick 0, comparable at any time, so an
// order by it needs no refreshing.
struct UseCount {
  double count = 0;   // at `tick`
  uint64_t tick = 0;  // time of the last use

  // A count that is at least one at `now`.
  void begin_at(uint64_t now, double half_life) {
    count = std::max(faded(now, half_life), 1.0);
    tick = now;
  }

  void add(uint64_t now, double half_life) {
    count = faded(now, half_life) + 1;
    tick = now;
  }

  [[nodiscard]] double faded(uint64_t now, double half_life) const {
    return count * std::exp2(-static_cast<double>(now - tick) / half_life);
  }

  // The count must not be zero.
  [[nodiscard]] double log2_at_zero(double half_life) const {
    return std::log2(count) + static_cast<double>(tick) / half_life;
  }
};

// The position of a node in an order of the EvictionQueue, the first to be evicted first.
struct VictimKey {
  double score = 0;     // what is lost per byte that becomes free, in the scale of the policy
  uint64_t used = 0;    // last use, on the tree's clock: decides between equal scores
  uint64_t serial = 0;  // unique per node: makes keys unique and runs reproducible

  auto operator<=>(const VictimKey&) const = default;
};

// Reference to a page of a table with a window; the tree may have dropped it since.
struct PageRef {
  int32_t id = 0;  // 0: none
  uint32_t generation = 0;
};

struct PrefixPage {
  int32_t id = 0;
  uint32_t generation = 0;  // generation of the id when the tree took the page

  // False: an ancestor owns the page. The sequence that gave it the page wrote on in it, while
  // another sequence inserted its own page between the two nodes.
  bool owned = true;
};

struct PrefixState {
  int32_t slot = 0;  // 0: none
  uint32_t generation = 0;
  bool keeps_hidden = false;
  bool middle = false;   // PrefixInsertion::middle, until a sequence resumes or ends here
  int64_t num_uses = 0;  // sequences that ended or resumed here; 1 is the one that brought it
};

struct PrefixNode {
  PrefixNode* parent = nullptr;             // null: a root
  const std::string* name_space = nullptr;  // a root's namespace
  uint64_t serial = 0;
  request::PrefixHash hash;  // hash of the tokens from the root to the edge's end

  int64_t begin = 0;            // tokens before the edge
  std::vector<TokenId> tokens;  // tokens on the edge; empty for a root
  int64_t first_page = 0;       // the index, counted from the first token of the path, of pages[0]
  std::vector<PrefixPage> pages;
  // [pages, tables with a window]: the page of the same tokens in each of these tables; none where
  // the page is not owned.
  std::vector<PageRef> window_refs;
  PrefixState state;
  std::vector<std::unique_ptr<PrefixNode>> children;  // ascending by their first token

  int64_t locks = 0;        // on this node and below it
  int64_t state_locks = 0;  // on the state of this node

  uint64_t kv_used = 0;  // when a sequence last passed, on the tree's clock
  UseCount kv_uses;
  UseCount state_uses;

  // The keys under which the EvictionQueue lists the node; none: it does not.
  std::optional<VictimKey> leaf_key;
  std::optional<VictimKey> state_key;
  std::optional<VictimKey> age_key;

  [[nodiscard]] int64_t depth() const { return begin + static_cast<int64_t>(tokens.size()); }

  [[nodiscard]] bool is_root() const { return parent == nullptr; }

  [[nodiscard]] bool is_leaf() const { return children.empty(); }

  [[nodiscard]] bool has_state() const { return state.slot != 0; }

  [[nodiscard]] int64_t end_page() const { return first_page + static_cast<int64_t>(pages.size()); }

  [[nodiscard]] int64_t num_owned_pages() const {
    // Only the first page can belong to another node.
    return static_cast<int64_t>(pages.size()) - (!pages.empty() && !pages.front().owned ? 1 : 0);
  }

  // The page with this index on the path, if the node has it; else null.
  [[nodiscard]] const PrefixPage* page_at(int64_t index) const {
    if (index < first_page || index >= end_page()) return nullptr;
    return &pages[static_cast<size_t>(index - first_page)];
  }

  // The entries of window_refs for pages[i].
  [[nodiscard]] std::span<PageRef> refs_of(size_t i) {
    const size_t count = window_refs.size() / pages.size();
    return std::span(window_refs).subspan(i * count, count);
  }

  [[nodiscard]] std::span<const PageRef> refs_of(size_t i) const {
    const size_t count = window_refs.size() / pages.size();
    return std::span(window_refs).subspan(i * count, count);
  }

  // The position of the child whose edge begins with `token`, or where it would be inserted.
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
