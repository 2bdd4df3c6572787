// SPDX-License-Identifier: Apache-2.0
#include "cache/node_states.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace heddle::cache {
namespace {

class NodeStatesTest : public ::testing::Test {
 protected:
  // A leaf below the root whose path has `depth` tokens; each begins with another one.
  PrefixNode& add_leaf(int64_t depth) {
    const std::vector<TokenId> tokens(static_cast<size_t>(depth), next_token_++);
    std::vector<int32_t> own;
    EXPECT_TRUE(pages_.grow(depth, own));
    return tree_.add_leaf(tree_.find_or_add_root(""), tokens, own, {},
                          request::PrefixHashes(tokens, "").of(tokens));
  }

  // A request's slot with the state after so many tokens; 0 if none is free.
  int32_t slot_after(int64_t num_tokens) {
    const int32_t slot = slots_.allocate();
    if (slot != 0) slots_.set_label(slot, num_tokens);
    return slot;
  }

  void attach(PrefixNode& node) { states_.attach(node, slot_after(node.depth()), false); }

  // As the tree does: a lock on a state is one on its node.
  void lock(PrefixNode& node) {
    tree_.lock(node);
    states_.lock(node);
  }

  void unlock(PrefixNode& node) {
    states_.unlock(node);
    tree_.unlock(node);
  }

  void expect_counts(int64_t states, int64_t evictable, int64_t middle) {
    EXPECT_EQ(states_.counts().states, states);
    EXPECT_EQ(states_.counts().evictable_states, evictable);
    EXPECT_EQ(states_.counts().middle_states, middle);
    EXPECT_EQ(slots_.ids().count(Owner::kTree), states);
    states_.check_invariants(tree_);
  }

  StateAllocator slots_{4};
  NodeStates states_{slots_};
  PageAllocator pages_{100, 4};
  RadixTree tree_{pages_, {}};
  TokenId next_token_ = 1;
};

TEST_F(NodeStatesTest, AStateBelongsToTheTreeUntilItIsDropped) {
  PrefixNode& node = add_leaf(5);
  const int32_t slot = slot_after(5);
  states_.attach(node, slot, /*keeps_hidden=*/true);
  EXPECT_EQ(node.state.slot, slot);
  EXPECT_TRUE(node.state.keeps_hidden);
  EXPECT_EQ(slots_.ids().owner(slot), Owner::kTree);
  expect_counts(1, 1, 0);
  states_.drop(node);
  EXPECT_FALSE(node.has_state());
  EXPECT_FALSE(node.state.keeps_hidden);
  EXPECT_EQ(slots_.num_free(), 4);
  expect_counts(0, 0, 0);
}

TEST_F(NodeStatesTest, ALaterStateTakesThePlaceOfTheOneBefore) {
  PrefixNode& node = add_leaf(5);
  states_.attach(node, slot_after(5), /*keeps_hidden=*/true);
  const int32_t before = node.state.slot;
  attach(node);
  EXPECT_NE(node.state.slot, before);
  EXPECT_FALSE(node.state.keeps_hidden);
  EXPECT_EQ(slots_.ids().owner(before), Owner::kFree);
  expect_counts(1, 1, 0);
}

TEST_F(NodeStatesTest, ALockedStateIsNotEvictable) {
  PrefixNode& node = add_leaf(5);
  attach(node);
  attach(add_leaf(9));
  lock(node);
  lock(node);
  expect_counts(2, 1, 0);
  unlock(node);
  expect_counts(2, 1, 0);
  unlock(node);
  expect_counts(2, 2, 0);
}

TEST_F(NodeStatesTest, CountsStatesInTheMiddleOnce) {
  PrefixNode& node = add_leaf(5);
  attach(node);
  states_.set_middle(node, true);
  states_.set_middle(node, true);
  expect_counts(1, 1, 1);
  states_.set_middle(node, false);
  expect_counts(1, 1, 0);
  states_.set_middle(node, true);
  states_.drop(node);
  expect_counts(0, 0, 0);
}

TEST_F(NodeStatesTest, AbortsWhereAStateIsNotTheOneThatWasAttached) {
  PrefixNode& node = add_leaf(5);
  const int32_t late = slot_after(6);
  EXPECT_DEATH(states_.attach(node, late, false), "label");
  EXPECT_DEATH(states_.unlock(node), "state_locks");
  attach(node);
  lock(node);
  EXPECT_DEATH(states_.drop(node), "state_locks");
  EXPECT_DEATH(attach(node), "state_locks");
  unlock(node);
  // Another owner gets the slot, even for as many tokens.
  slots_.release(node.state.slot);
  EXPECT_EQ(slot_after(5), node.state.slot);
  EXPECT_DEATH(states_.check(node), "generation");
}

TEST_F(NodeStatesTest, AgreesWithASimpleModel) {
  struct Simple {
    bool has_state = false;
    bool middle = false;
    int locks = 0;
  };

  constexpr size_t kNodes = 8;  // more than the slots
  std::vector<PrefixNode*> nodes;
  for (size_t i = 0; i < kNodes; ++i) nodes.push_back(&add_leaf(static_cast<int64_t>(i) + 1));
  std::vector<Simple> simple(kNodes);
  std::mt19937 random(7);
  for (int step = 0; step < 5000; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    const size_t i = random() % kNodes;
    PrefixNode& node = *nodes[i];
    Simple& expected = simple[i];
    switch (random() % 5) {
      case 0: {
        if (expected.locks > 0) break;
        const int32_t slot = slot_after(node.depth());
        if (slot == 0) break;
        states_.attach(node, slot, random() % 2 == 0);
        expected.has_state = true;
        break;
      }
      case 1:
        if (!expected.has_state || expected.locks > 0) break;
        states_.drop(node);
        expected = {};
        break;
      case 2:
        if (!expected.has_state) break;
        lock(node);
        ++expected.locks;
        break;
      case 3:
        if (expected.locks == 0) break;
        unlock(node);
        --expected.locks;
        break;
      case 4:
        if (!expected.has_state) break;
        expected.middle = random() % 2 == 0;
        states_.set_middle(node, expected.middle);
        break;
    }
    int64_t states = 0, evictable = 0, middle = 0;
    for (size_t n = 0; n < kNodes; ++n) {
      EXPECT_EQ(nodes[n]->has_state(), simple[n].has_state);
      states += simple[n].has_state ? 1 : 0;
      evictable += simple[n].has_state && simple[n].locks == 0 ? 1 : 0;
      middle += simple[n].middle ? 1 : 0;
    }
    expect_counts(states, evictable, middle);
    EXPECT_EQ(slots_.num_free(), slots_.num_slots() - states);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace heddle::cache
