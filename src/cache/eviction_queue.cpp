// SPDX-License-Identifier: Apache-2.0
#include "cache/eviction_queue.h"

#include <vector>

#include "core/check.h"

namespace heddle::cache {

void EvictionOrder::update(PrefixNode& node, std::optional<VictimKey>& key,
                           const std::optional<VictimKey>& wanted) {
  if (key == wanted) return;
  if (key) HEDDLE_CHECK_EQ(nodes_.erase(*key), 1U);
  if (wanted) HEDDLE_CHECK(nodes_.emplace(*wanted, &node).second);
  key = wanted;
}

bool EvictionOrder::contains(const VictimKey& key, const PrefixNode& node) const {
  const auto found = nodes_.find(key);
  return found != nodes_.end() && found->second == &node;
}

namespace {

bool gives_up_leaf(const PrefixNode& node) { return node.is_leaf() && node.locks == 0; }

bool gives_up_state(const PrefixNode& node) { return node.has_state() && node.state_locks == 0; }

}  // namespace

void EvictionQueue::update(PrefixNode& node) {
  std::optional<VictimKey> leaf;
  std::optional<VictimKey> state;
  std::optional<VictimKey> age;
  if (gives_up_leaf(node)) leaf = score_.leaf_key(node);
  if (gives_up_state(node)) {
    state = score_.state_key(node);
    if (node.state.middle) {
      const uint64_t tick = node.state_uses.tick;
      age = VictimKey{static_cast<double>(tick), tick, node.serial};
    }
  }
  leaves_.update(node, node.leaf_key, leaf);
  states_.update(node, node.state_key, state);
  middle_states_.update(node, node.age_key, age);
}

void EvictionQueue::update_states_below(PrefixNode& node) {
  std::vector<PrefixNode*> pending{&node};
  while (!pending.empty()) {
    PrefixNode* above = pending.back();
    pending.pop_back();
    for (const auto& child : above->children) {
      if (child->has_state()) {
        update(*child);
      } else {
        pending.push_back(child.get());
      }
    }
  }
}

void EvictionQueue::remove(PrefixNode& node) {
  leaves_.update(node, node.leaf_key, {});
  states_.update(node, node.state_key, {});
  middle_states_.update(node, node.age_key, {});
}

EvictionQueue::Victim EvictionQueue::next() const {
  PrefixNode* const leaf = leaves_.first();
  PrefixNode* const state = states_.first();
  if (state == nullptr || (leaf != nullptr && *leaf->leaf_key < *state->state_key)) {
    return {.node = leaf, .is_leaf = true};
  }
  return {.node = state};
}

void EvictionQueue::check_invariants(const RadixTree& tree) const {
  int64_t num_leaves = 0;
  int64_t num_states = 0;
  int64_t num_middle_states = 0;
  tree.for_each_node([&](const PrefixNode& node) {
    HEDDLE_CHECK_EQ(node.leaf_key.has_value(), gives_up_leaf(node));
    HEDDLE_CHECK_EQ(node.state_key.has_value(), gives_up_state(node));
    HEDDLE_CHECK_EQ(node.age_key.has_value(), gives_up_state(node) && node.state.middle);
    if (node.leaf_key) {
      HEDDLE_CHECK(*node.leaf_key == score_.leaf_key(node));
      HEDDLE_CHECK(leaves_.contains(*node.leaf_key, node));
      ++num_leaves;
    }
    if (node.state_key) {
      HEDDLE_CHECK(*node.state_key == score_.state_key(node));
      HEDDLE_CHECK(states_.contains(*node.state_key, node));
      ++num_states;
    }
    if (node.age_key) {
      HEDDLE_CHECK(middle_states_.contains(*node.age_key, node));
      ++num_middle_states;
    }
  });
  HEDDLE_CHECK_EQ(leaves_.size(), num_leaves);
  HEDDLE_CHECK_EQ(states_.size(), num_states);
  HEDDLE_CHECK_EQ(middle_states_.size(), num_middle_states);
}

}  // namespace heddle::cache
