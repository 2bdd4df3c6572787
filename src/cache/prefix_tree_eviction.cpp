// SPDX-License-Identifier: Apache-2.0
// What PrefixTree gives up, and in what order.
#include <algorithm>
#include <utility>

#include "cache/prefix_node.h"
#include "cache/prefix_tree.h"
#include "core/check.h"

namespace heddle::cache {

void PrefixTree::free_page(int32_t page) {
  HEDDLE_CHECK(pages_.ids().owner(page) == Owner::kTree);
  pages_.ids().free_one(page);
}

void PrefixTree::drop_state(PrefixNode& node) {
  check_state(node);
  HEDDLE_CHECK_EQ(node.state_locks, 0);
  states_.release(node.state.slot);
  state_order_.update(node, node.state_place, {});
  middle_states_.update(node, node.age_place, {});
  if (node.state.middle) --stats_.middle_states;
  node.state = {};
  node.state_uses = {};
  --stats_.states;
  --stats_.evictable_states;
}

// Without states every page boundary of the edge could be resumed at.
void PrefixTree::remember_edge(const PrefixNode& leaf) {
  request::PrefixHash hash = leaf.parent->hash;
  int64_t depth = leaf.begin;
  for (const TokenId token : leaf.tokens) {
    hash = request::extend_hash(hash, depth, token);
    if (++depth % pages_.page_size() == 0) ghosts_.add(hash, depth);
  }
}

// Takes out a leaf with all it has; what that makes of the nodes above is the caller's to see.
void PrefixTree::remove_leaf(PrefixNode& leaf) {
  HEDDLE_CHECK(leaf.is_leaf());
  HEDDLE_CHECK_EQ(leaf.locks, 0);
  if (leaf.has_state()) {
    drop_state(leaf);
    ghosts_.add(leaf.hash, leaf.depth());
    ++stats_.evicted_states;
  }
  if (!options_.needs_state) remember_edge(leaf);
  count_pages(leaf, -leaf.num_owned_pages());
  for (const PrefixPage& page : leaf.pages) {
    if (page.owned) {
      free_page(page.id);
    } else if (--shared_pages_.at(page.id) == 0) {
      shared_pages_.erase(page.id);
    }
  }
  const auto length = static_cast<int64_t>(leaf.tokens.size());
  stats_.num_tokens -= length;
  stats_.evicted_tokens += length;
  --stats_.num_nodes;
  leaves_.update(leaf, leaf.kv_place, {});
  auto& siblings = leaf.parent->children;
  siblings.erase(leaf.parent->child_position(leaf.tokens.front()));
}

// Takes the node out if nothing can resume at it any more, or joins it with its child if neither a
// state nor a fork keeps them apart. Returns whether one of these happened.
bool PrefixTree::settle(PrefixNode& node) {
  if (options_.needs_state && node.is_leaf() && !node.has_state() && node.locks == 0) {
    remove_leaf(node);
    return true;
  }
  if (merge_into_child(node)) return true;
  if (node.is_leaf()) set_middle(node, false);  // what lay below is gone: it is an end now
  place(node);
  return false;
}

// Settles nodes from `node` upwards: all of them, or until one stays what it was.
void PrefixTree::settle_path(PrefixNode* node, bool whole) {
  while (!node->is_root()) {
    PrefixNode* parent = node->parent;
    if (!settle(*node) && !whole) return;
    node = parent;
  }
  if (node->is_leaf()) roots_.erase(roots_.find(*node->name_space));
}

void PrefixTree::give_up_leaf(PrefixNode& leaf) {
  PrefixNode* parent = leaf.parent;
  remove_leaf(leaf);
  settle_path(parent, false);
}

// The child survives, because locks may point at it. Returns whether it happened.
bool PrefixTree::merge_into_child(PrefixNode& node) {
  if (!options_.needs_state || node.has_state() || node.children.size() != 1) return false;
  PrefixNode& child = *node.children.front();
  if (child.locks != node.locks) return false;  // somebody holds the node itself

  if (!node.pages.empty() && !child.pages.empty() && child.first_page < node.end_page()) {
    // Both have a page for the same tokens, and the child's counts.
    const PrefixPage upper = node.pages.back();
    PrefixPage& lower = child.pages.front();
    if (upper.owned && upper.id != lower.id) {
      // A running sequence below may still read the page that it gave here, and a node below may.
      if (node.locks > 0 || shared_pages_.contains(upper.id)) return false;
      count_pages(node, -1);
      free_page(upper.id);
    } else {
      const int32_t shared = upper.owned ? lower.id : upper.id;
      if (upper.owned) lower.owned = true;
      if (--shared_pages_.at(shared) == 0) shared_pages_.erase(shared);
    }
    node.pages.pop_back();
  }
  if (!node.pages.empty() || child.pages.empty()) child.first_page = node.first_page;
  node.pages.insert(node.pages.end(), child.pages.begin(), child.pages.end());
  child.pages = std::move(node.pages);
  std::unique_ptr<PrefixNode>& link = *node.parent->child_position(node.tokens.front());
  node.tokens.insert(node.tokens.end(), child.tokens.begin(), child.tokens.end());
  child.tokens = std::move(node.tokens);
  child.begin = node.begin;
  child.parent = node.parent;

  std::unique_ptr<PrefixNode> survivor = std::move(node.children.front());
  node.children.clear();
  link = std::move(survivor);  // ends the life of `node`
  --stats_.num_nodes;
  place(child);
  return true;
}

// The state, and the leaf with it if nobody else keeps it.
void PrefixTree::give_up_state(PrefixNode& node) {
  drop_state(node);
  ghosts_.add(node.hash, node.depth());
  ++stats_.evicted_states;
  place(node);
  place_states_below(node);
  settle_path(&node, false);
}

bool PrefixTree::drop_unused_state(PrefixNode* node) {
  if (node == nullptr || !node->has_state() || node->state_locks > 0) return false;
  if (node->state.num_uses > 1 || node->children.size() > 1) return false;
  const request::PrefixHash hash = node->hash;
  const PrefixTreeStats before = stats_;
  give_up_state(*node);
  stats_.evicted_states = before.evicted_states;  // it was replaced, not evicted
  stats_.evicted_tokens = before.evicted_tokens;
  ghosts_.remove(hash);
  return true;
}

int64_t PrefixTree::evict_pages(int64_t count) {
  const int64_t before = stats_.pages;
  while (before - stats_.pages < count) {
    PrefixNode* leaf = leaves_.first();
    if (leaf == nullptr) break;
    give_up_leaf(*leaf);
  }
  return before - stats_.pages;
}

int64_t PrefixTree::evict_states(int64_t count) {
  const int64_t before = stats_.states;
  while (before - stats_.states < count) {
    PrefixNode* node = state_order_.first();
    if (node == nullptr) break;
    give_up_state(*node);
  }
  return before - stats_.states;
}

bool PrefixTree::evict_state_for_middle(int64_t from, int64_t to, uint64_t since) {
  PrefixNode* node = middle_states_.first();
  if (stats_.middle_states < max_middle_states_) {
    node = state_order_.first();
  } else if (node == nullptr || node->state_uses.tick >= since) {
    node = state_order_.first();
    if (node != nullptr &&
        node->state_place->score >= score_.fresh_middle_score(from, to, clock_)) {
      return false;
    }
  }
  if (node == nullptr) return false;
  give_up_state(*node);
  return true;
}

int64_t PrefixTree::evict_bytes(int64_t bytes) {
  const PrefixTreeStats before = stats_;
  const auto freed = [&] {
    return (before.pages - stats_.pages) * options_.page_bytes +
           (before.states - stats_.states) * options_.state_bytes;
  };
  while (freed() < bytes) {
    PrefixNode* leaf = leaves_.first();
    PrefixNode* state = state_order_.first();
    if (leaf == nullptr && state == nullptr) break;
    if (state == nullptr || (leaf != nullptr && *leaf->kv_place < *state->state_place)) {
      give_up_leaf(*leaf);
    } else {
      give_up_state(*state);
    }
  }
  return freed();
}

void PrefixTree::clear() {
  const PrefixTreeStats before = stats_;
  while (PrefixNode* leaf = leaves_.first()) give_up_leaf(*leaf);
  while (PrefixNode* node = state_order_.first()) give_up_state(*node);
  ghosts_.clear();
  stats_.evicted_states = before.evicted_states;  // given up on request, not evicted
  stats_.evicted_tokens = before.evicted_tokens;
}

}  // namespace heddle::cache
