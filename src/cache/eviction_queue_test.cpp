// SPDX-License-Identifier: Apache-2.0
#include "cache/eviction_queue.h"

#include <gtest/gtest.h>

#include "cache/prefix_tree.h"
#include "cache/prefix_tree_fixture.h"

namespace heddle::cache {
namespace {

// Leaves of a root, listed in a queue; no tree owns them.
class EvictionQueueTest : public ::testing::Test {
 protected:
  PrefixNode& add(uint64_t used, bool has_state, bool middle = false) {
    auto node = std::make_unique<PrefixNode>();
    node->parent = &root_;
    node->serial = root_.children.size() + 1;
    node->tokens.assign(100, 1);
    node->kv_used = used;
    node->kv_uses = {.count = 1, .tick = used};
    if (has_state) {
      node->state = {.slot = static_cast<int32_t>(node->serial), .middle = middle};
      node->state_uses = {.count = 1, .tick = used};
    }
    root_.children.push_back(std::move(node));
    queue_.update(*root_.children.back());
    return *root_.children.back();
  }

  PrefixNode root_;
  EvictionQueue queue_{{.eviction = EvictionPolicy::kLru}, 64};
};

TEST_F(EvictionQueueTest, TheLeastRecentlyUsedGoesFirst) {
  EXPECT_EQ(queue_.next_leaf(), nullptr);
  EXPECT_EQ(queue_.next().node, nullptr);
  PrefixNode& newer = add(5, false);
  PrefixNode& older = add(3, false);
  EXPECT_EQ(queue_.next_leaf(), &older);
  older.kv_used = 9;
  queue_.update(older);
  EXPECT_EQ(queue_.next_leaf(), &newer);
  queue_.remove(newer);
  EXPECT_EQ(queue_.next_leaf(), &older);
  EXPECT_EQ(queue_.next_state(), nullptr);
}

TEST_F(EvictionQueueTest, LockedNodesAreNotListed) {
  PrefixNode& node = add(1, true);
  EXPECT_EQ(queue_.next_leaf(), &node);
  EXPECT_EQ(queue_.next_state(), &node);
  node.locks = 1;
  queue_.update(node);
  EXPECT_EQ(queue_.next_leaf(), nullptr);
  EXPECT_EQ(queue_.next_state(), &node) << "the state alone is not locked";
  node.state_locks = 1;
  queue_.update(node);
  EXPECT_EQ(queue_.next_state(), nullptr);
}

TEST_F(EvictionQueueTest, ComparesLeavesWithStates) {
  PrefixNode& leaf = add(3, false);
  PrefixNode& state = add(5, true);
  state.locks = 1;
  queue_.update(state);
  EXPECT_EQ(queue_.next().node, &leaf);
  EXPECT_TRUE(queue_.next().is_leaf);
  leaf.kv_used = 7;
  queue_.update(leaf);
  EXPECT_EQ(queue_.next().node, &state);
  EXPECT_FALSE(queue_.next().is_leaf);
}

TEST_F(EvictionQueueTest, ListsMiddleStatesByAge) {
  add(1, true);
  PrefixNode& newer = add(5, true, /*middle=*/true);
  PrefixNode& older = add(3, true, /*middle=*/true);
  EXPECT_EQ(queue_.oldest_middle_state(), &older);
  older.state.middle = false;
  queue_.update(older);
  EXPECT_EQ(queue_.oldest_middle_state(), &newer);
}

// By work: of two states of one size the one that saves more stays, and a state is worth more once
// the one above it is gone.
TEST(EvictionQueueByWorkTest, DroppingAStateRaisesTheWorthOfTheNextOneDown) {
  TreeFixture fixture({.page_size = 16, .tree = {.page_bytes = 16, .state_bytes = 1000}});
  const Tokens chain = fixture.unique(3000);
  for (const int64_t length : {1000, 2000, 3000}) fixture.insert(chain, length);
  const PrefixNode* middle = fixture.tree.match(chain, "", 2000).resume;
  const double before = middle->state_key->score;
  ASSERT_EQ(fixture.tree.evict_states(1), 1);
  ASSERT_EQ(fixture.tree.to_string(), "[0,2000)@2000\n  [2000,3000)@3000\n");
  EXPECT_GT(middle->state_key->score, before);
}

// The order of two states depends on how the model's work grows with the length.
TEST(EvictionScoreTest, CountsTheWorkOfTheServedModel) {
  PrefixNode root;
  PrefixNode alone;  // 4,000 tokens, nothing above
  alone.parent = &root;
  alone.tokens.assign(4000, 1);
  PrefixNode above;
  above.parent = &root;
  above.tokens.assign(3900, 2);
  above.state = {.slot = 1};
  PrefixNode deep;  // 2,100 tokens below a state at 3,900
  deep.parent = &above;
  deep.begin = 3900;
  deep.tokens.assign(2100, 3);
  for (PrefixNode* node : {&alone, &deep}) node->state_uses = {.count = 1, .tick = 1};

  const auto worth = [](const request::PrefillFlops& flops, const PrefixNode& node) {
    return EvictionScore({.flops = flops}, 64).state_key(node).score;
  };
  const request::PrefillFlops linear{.per_token = 1e6};
  const request::PrefillFlops quadratic{.per_pair = 1e6};
  EXPECT_GT(worth(linear, alone), worth(linear, deep)) << "4,000 against 2,100";
  EXPECT_LT(worth(quadratic, alone), worth(quadratic, deep)) << "16.0e6 against 20.8e6";
  const request::PrefillFlops windowed{.per_window_pair = 1e6, .window = 128};
  EXPECT_GT(worth(windowed, alone), worth(windowed, deep)) << "linear beyond the window";
}

TEST(EvictionScoreDeathTest, NeedsTheWorkOfTheServedModelUnlessItGoesByUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PrefixNode root;
  PrefixNode node;
  node.parent = &root;
  node.tokens.assign(8, 1);
  node.state = {.slot = 1};
  node.state_uses = {.count = 1, .tick = 1};
  EXPECT_DEATH((void)EvictionScore({}, 64).state_key(node), "flops.is_set");
  EXPECT_EQ(EvictionScore({.eviction = EvictionPolicy::kLru}, 64).state_key(node).score, 1);
}

}  // namespace
}  // namespace heddle::cache
