// SPDX-License-Identifier: Apache-2.0
// PrefixNode: one edge of the prefix tree with its tokens, pages, state and statistics. Plain data:
// RadixTree keeps edges and pages consistent, NodeStates the state, EvictionQueue the keys.
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

// UseCount: how often something was used, where a use counts half as much after every half-life.
//
// All counts fade at the same rate, so which of two is larger does not change while neither is
// used. log2_at_zero() relies on that: it extrapolates the count to tick 0, which makes counts
// comparable at any time, so an order by it needs no refreshing.
struct UseCount {
  double count = 0;   // faded number of uses at tick `tick`
  uint64_t tick = 0;  // tick of the last use

  // Starts the count at tick `now`: at least one.
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

  // The logarithm of the count, extrapolated to tick 0. The count must not be zero.
  [[nodiscard]] double log2_at_zero(double half_life) const {
    return std::log2(count) + static_cast<double>(tick) / half_life;
  }
};

// The position of a node in an order of the EvictionQueue; the smallest key is evicted first.
struct VictimKey {
  double score = 0;     // value lost per byte freed, on the scale of the policy
  uint64_t used = 0;    // tick of the last use on the tree's clock; decides between equal scores
  uint64_t serial = 0;  // unique per node: makes keys unique and runs reproducible

  auto operator<=>(const VictimKey&) const = default;
};

// Refers to a page of a table with a window. The tree may have dropped the page since.
struct PageRef {
  int32_t id = 0;  // id of the page; 0: there is no page
  uint32_t generation = 0;
};

struct PrefixPage {
  int32_t id = 0;
  uint32_t generation = 0;  // generation of the id when the tree took the page over

  // False: an ancestor owns the page. The sequence that published the page wrote on in it, while
  // another sequence inserted a page of its own between the two nodes.
  bool owned = true;
};

struct PrefixState {
  int32_t slot = 0;  // 0: the node has no state
  uint32_t generation = 0;
  bool keeps_hidden = false;
  bool middle = false;   // taken in case a sequence forks here; false once one has resumed or ended
                         // here
  int64_t num_uses = 0;  // sequences that ended or resumed here, including the one that attached
                         // the state
};

struct PrefixNode {
  PrefixNode* parent = nullptr;             // null: the node is a root
  const std::string* name_space = nullptr;  // name of the namespace, in a root
  uint64_t serial = 0;
  request::PrefixHash hash;  // hash of the tokens from the root to the end of the edge

  int64_t begin = 0;            // number of tokens before the edge
  std::vector<TokenId> tokens;  // tokens on the edge; empty for a root
  int64_t first_page = 0;       // index of pages[0] in the page list of the whole path
  std::vector<PrefixPage> pages;
  // [pages, tables with a window]: for each page, the pages of the same tokens in these tables;
  // empty where this node does not own the page.
  std::vector<PageRef> window_refs;
  PrefixState state;
  std::vector<std::unique_ptr<PrefixNode>> children;  // children, ascending by the first token of
                                                      // their edges

  int64_t locks = 0;        // locks on this node and on the nodes below it
  int64_t state_locks = 0;  // locks on the state of this node

  uint64_t kv_used = 0;  // when a sequence last used the KV, on the tree's clock
  UseCount kv_uses;
  UseCount state_uses;

  // The keys under which the orders of the EvictionQueue list the node; no value: not listed there.
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

  // The page with this index in the path's page list, if this node has it; else null.
  [[nodiscard]] const PrefixPage* page_at(int64_t index) const {
    if (index < first_page || index >= end_page()) return nullptr;
    return &pages[static_cast<size_t>(index - first_page)];
  }

  // The entries of window_refs that belong to pages[i].
  [[nodiscard]] std::span<PageRef> refs_of(size_t i) {
    const size_t count = window_refs.size() / pages.size();
    return std::span(window_refs).subspan(i * count, count);
  }

  [[nodiscard]] std::span<const PageRef> refs_of(size_t i) const {
    const size_t count = window_refs.size() / pages.size();
    return std::span(window_refs).subspan(i * count, count);
  }

  // Position of the child whose edge begins with `token`, or where such a child would be inserted.
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

// The nearest ancestor that has a state; null if there is none.
[[nodiscard]] inline const PrefixNode* state_above(const PrefixNode& node) {
  const PrefixNode* above = node.parent;
  while (above != nullptr && !above->has_state()) above = above->parent;
  return above;
}

}  // namespace heddle::cache
