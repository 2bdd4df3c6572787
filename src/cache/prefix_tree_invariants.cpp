// SPDX-License-Identifier: Apache-2.0
// The proof of PrefixTree's invariants; the numbers are those of the contract
// (docs/hybrid-cache.md).
#include <unordered_set>

#include "cache/prefix_node.h"
#include "cache/prefix_tree.h"
#include "core/check.h"

namespace heddle::cache {

struct PrefixTree::Census {
  PrefixTreeStats stats;
  std::unordered_set<int32_t> pages;
  std::unordered_set<int32_t> slots;
  std::unordered_map<int32_t, int64_t> shared_pages;
  int64_t num_leaves_placed = 0;
  int64_t num_states_placed = 0;
};

void PrefixTree::check_invariants(bool idle) const {
  Census census;
  std::vector<const PrefixNode*> pending;
  for (const auto& [name, root] : roots_) {
    HEDDLE_CHECK_EQ(*root->name_space, name);
    HEDDLE_CHECK(root->is_root() && root->tokens.empty() && root->pages.empty());
    HEDDLE_CHECK(!root->has_state() && root->locks == 0 && !root->is_leaf());
    pending.push_back(root.get());
    while (!pending.empty()) {
      const PrefixNode* node = pending.back();
      pending.pop_back();
      check_node(*node, idle, census);
      for (const auto& child : node->children) pending.push_back(child.get());
    }
  }

  // I4: the counters agree with the nodes; I7: the orders hold these nodes and no others.
  HEDDLE_CHECK_EQ(stats_.num_nodes, census.stats.num_nodes);
  HEDDLE_CHECK_EQ(stats_.num_tokens, census.stats.num_tokens);
  HEDDLE_CHECK_EQ(stats_.pages, census.stats.pages);
  HEDDLE_CHECK_EQ(stats_.evictable_pages, census.stats.evictable_pages);
  HEDDLE_CHECK_EQ(stats_.states, census.stats.states);
  HEDDLE_CHECK_EQ(stats_.evictable_states, census.stats.evictable_states);
  HEDDLE_CHECK_EQ(leaves_.size(), census.num_leaves_placed);
  HEDDLE_CHECK_EQ(state_order_.size(), census.num_states_placed);
  HEDDLE_CHECK(shared_pages_ == census.shared_pages);

  // I3, I11 and I14: what the pools say belongs to the tree is what the nodes have.
  HEDDLE_CHECK_EQ(pages_.ids().count(Owner::kTree), stats_.pages);
  HEDDLE_CHECK_EQ(states_.ids().count(Owner::kTree), stats_.states);
  pages_.check_invariants();
  states_.check_invariants();
}

void PrefixTree::check_node(const PrefixNode& node, bool idle, Census& census) const {
  // I1: edges of siblings differ in their first token, and links agree.
  int64_t locks_below = 0;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const PrefixNode& child = *node.children[i];
    HEDDLE_CHECK(child.parent == &node);
    HEDDLE_CHECK_EQ(child.begin, node.depth());
    HEDDLE_CHECK(!child.tokens.empty());
    request::PrefixHash hash = node.hash;
    for (int64_t index = 0; const TokenId token : child.tokens) {
      hash = request::extend_hash(hash, child.begin + index++, token);
    }
    HEDDLE_CHECK(child.hash == hash);
    if (i > 0) HEDDLE_CHECK_LT(node.children[i - 1]->tokens.front(), child.tokens.front());
    locks_below += child.locks;
  }
  if (node.is_root()) return;
  ++census.stats.num_nodes;
  census.stats.num_tokens += static_cast<int64_t>(node.tokens.size());
  check_pages(node, census);

  // I5: whoever holds a node holds its path.
  HEDDLE_CHECK_GE(node.locks, locks_below);
  HEDDLE_CHECK_GE(node.locks - locks_below, node.state_locks);
  if (idle) HEDDLE_CHECK_EQ(node.locks, 0);

  if (node.has_state()) {
    // I8 and I14: the label is the depth, the slot is still the one that was given.
    HEDDLE_CHECK(options_.needs_state);
    check_state(node);
    HEDDLE_CHECK(states_.ids().owner(node.state.slot) == Owner::kTree);
    HEDDLE_CHECK(census.slots.insert(node.state.slot).second);
    ++census.stats.states;
    if (node.state_locks == 0) ++census.stats.evictable_states;
  } else {
    HEDDLE_CHECK_EQ(node.state_locks, 0);
    HEDDLE_CHECK(!node.state.keeps_hidden);
    // I6: without a state nothing resumes at a leaf; only a lock may keep it.
    if (options_.needs_state && node.is_leaf()) HEDDLE_CHECK_LT(0, node.locks);
  }

  // I7
  const bool in_leaves = node.is_leaf() && node.locks == 0;
  const bool in_states = node.has_state() && node.state_locks == 0;
  HEDDLE_CHECK_EQ(node.kv_place.has_value(), in_leaves);
  HEDDLE_CHECK_EQ(node.state_place.has_value(), in_states);
  if (in_leaves) {
    HEDDLE_CHECK(*node.kv_place == score_.leaf_key(node));
    HEDDLE_CHECK(leaves_.contains(*node.kv_place, node));
    ++census.num_leaves_placed;
  }
  if (in_states) {
    HEDDLE_CHECK(*node.state_place == score_.state_key(node));
    HEDDLE_CHECK(state_order_.contains(*node.state_place, node));
    HEDDLE_CHECK_EQ(node.age_place.has_value(), node.state.middle);
    ++census.num_states_placed;
  }
}

// I2 and I3: a node has the pages of its edge, with or without the one that it begins inside of.
void PrefixTree::check_pages(const PrefixNode& node, Census& census) const {
  const int64_t page_size = pages_.page_size();
  const int64_t begin_page = node.begin / page_size;
  const bool shares_first = node.begin % page_size != 0 && node.first_page == begin_page + 1;
  HEDDLE_CHECK(node.first_page == begin_page || shares_first);
  HEDDLE_CHECK_EQ(node.end_page(), pages_.pages_for(node.depth()));
  for (size_t i = 0; i < node.pages.size(); ++i) {
    const PrefixPage& page = node.pages[i];
    HEDDLE_CHECK(pages_.ids().owner(page.id) == Owner::kTree);
    HEDDLE_CHECK_EQ(pages_.ids().generation(page.id), page.generation);
    if (page.owned) {
      HEDDLE_CHECK(census.pages.insert(page.id).second);
      ++census.stats.pages;
      if (node.locks == 0) ++census.stats.evictable_pages;
      continue;
    }
    HEDDLE_CHECK_EQ(i, 0U);
    ++census.shared_pages[page.id];
    const PrefixNode* above = node.parent;
    const auto owns_it = [&] {
      return above->first_page <= node.first_page && node.first_page < above->end_page() &&
             above->pages[static_cast<size_t>(node.first_page - above->first_page)].id == page.id &&
             above->pages[static_cast<size_t>(node.first_page - above->first_page)].owned;
    };
    while (above != nullptr && !owns_it()) above = above->parent;
    HEDDLE_CHECK(above != nullptr);
  }
}

}  // namespace heddle::cache
