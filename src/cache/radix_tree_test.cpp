// SPDX-License-Identifier: Apache-2.0
#include "cache/radix_tree.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cache {
namespace {

using ::testing::ElementsAre;

class RadixTreeTest : public ::testing::Test {
 protected:
  // Adds an edge for the tokens beyond `parent`, with pages of its own for all of them. Pages that
  // the tree does not take are freed.
  PrefixNode& add(PrefixNode& parent, const std::vector<TokenId>& tokens) {
    std::vector<int32_t> own;
    EXPECT_TRUE(pages_.grow(std::ssize(tokens), own));
    PrefixNode& leaf = tree_.add_leaf(parent, tokens, own, {}, hash_of(tokens));
    for (const int32_t page : own) {
      if (pages_.ids().owner(page) == Owner::kRequest) pages_.ids().free_one(page);
    }
    return leaf;
  }

  static request::PrefixHash hash_of(std::span<const TokenId> tokens) {
    return request::PrefixHashes(tokens, "").of(tokens);
  }

  static std::vector<TokenId> counted(int64_t count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), 0);
    return tokens;
  }

  std::vector<int32_t> pages_of(const PrefixNode& node) {
    std::vector<int32_t> pages;
    tree_.append_pages(&node, node.depth(), pages);
    return pages;
  }

  PageAllocator pages_{20, 4};
  RadixTree tree_{pages_, {}};
};

TEST(SharedPrefixLength, StopsAtTheFirstTokenThatDiffers) {
  std::vector<TokenId> a(1000, 7);
  std::vector<TokenId> b = a;
  EXPECT_EQ(shared_prefix_length(a, b), 1000);
  EXPECT_EQ(shared_prefix_length(a, std::span(b).first(300)), 300);
  for (const size_t index : {size_t{0}, size_t{255}, size_t{256}, size_t{999}}) {
    b[index] = 8;
    EXPECT_EQ(shared_prefix_length(a, b), static_cast<int64_t>(index));
    b[index] = 7;
  }
  EXPECT_EQ(shared_prefix_length({}, a), 0);
}

TEST_F(RadixTreeTest, ASplitLeavesEveryPageWhereItWas) {
  const std::vector<TokenId> tokens = counted(10);
  PrefixNode& leaf = add(tree_.find_or_add_root(""), tokens);
  const std::vector<int32_t> before = pages_of(leaf);
  PrefixNode& upper = tree_.split(leaf, 6, hash_of(std::span(tokens).first(6)));
  EXPECT_EQ(upper.depth(), 6);
  EXPECT_EQ(upper.pages.size(), 2U) << "the page that the cut goes through belongs to the upper";
  EXPECT_EQ(leaf.begin, 6);
  EXPECT_EQ(leaf.parent, &upper);
  EXPECT_EQ(pages_of(leaf), before);
  EXPECT_EQ(tree_.counts().num_nodes, 2);
  EXPECT_EQ(tree_.counts().num_tokens, 10);
  EXPECT_EQ(tree_.counts().pages, 3);
  tree_.check_invariants(true);
}

TEST_F(RadixTreeTest, AnEdgeThatBeginsInsideAPageBringsAPageOfItsOwn) {
  const std::vector<TokenId> tokens = counted(10);
  PrefixNode& top = add(tree_.find_or_add_root(""), {tokens.begin(), tokens.begin() + 6});
  PrefixNode& leaf = add(top, tokens);
  EXPECT_EQ(leaf.pages.size(), 2U);
  const std::vector<int32_t> path = pages_of(leaf);
  EXPECT_THAT(path, ElementsAre(top.pages[0].id, leaf.pages[0].id, leaf.pages[1].id));
  EXPECT_EQ(pages_.num_used(), 4);

  // Joined, the upper edge's page for the same tokens is freed.
  EXPECT_EQ(tree_.merge_into_child(top), &leaf);
  EXPECT_EQ(pages_of(leaf), path);
  EXPECT_EQ(pages_.num_used(), 3);
  EXPECT_EQ(tree_.counts().num_nodes, 1);
  tree_.check_invariants(true);
}

TEST_F(RadixTreeTest, JoinsOnlyWhatNothingKeepsApart) {
  const std::vector<TokenId> tokens = counted(8);
  PrefixNode& top = add(tree_.find_or_add_root(""), {tokens.begin(), tokens.begin() + 4});
  EXPECT_EQ(tree_.merge_into_child(top), nullptr) << "it has no child";
  PrefixNode& leaf = add(top, tokens);
  tree_.lock(top);
  EXPECT_EQ(tree_.merge_into_child(top), nullptr) << "a lock points at it";
  tree_.unlock(top);
  PrefixNode& fork = add(top, {0, 1, 2, 3, 9});
  EXPECT_EQ(tree_.merge_into_child(top), nullptr) << "it is a fork";
  tree_.remove_leaf(fork);
  tree_.lock(leaf);
  EXPECT_EQ(tree_.merge_into_child(top), &leaf) << "the lock is on the path of both";
  EXPECT_EQ(leaf.locks, 1);
  tree_.unlock(leaf);
  tree_.check_invariants(true);
}

TEST_F(RadixTreeTest, LocksKeepThePagesOfThePath) {
  PrefixNode& top = add(tree_.find_or_add_root(""), counted(4));
  PrefixNode& leaf = add(top, counted(8));
  PrefixNode& fork = add(top, {0, 1, 2, 3, 9});
  EXPECT_EQ(tree_.counts().evictable_pages, 3);
  tree_.lock(leaf);
  tree_.lock(leaf);
  tree_.lock(fork);
  EXPECT_EQ(top.locks, 3);
  EXPECT_EQ(tree_.counts().evictable_pages, 0);
  tree_.unlock(fork);
  EXPECT_EQ(tree_.counts().evictable_pages, 1);
  tree_.unlock(leaf);
  EXPECT_EQ(tree_.counts().evictable_pages, 1);
  tree_.unlock(leaf);
  EXPECT_EQ(tree_.counts().evictable_pages, 3);
  tree_.check_invariants(true);
}

TEST_F(RadixTreeTest, NamespacesHaveRootsOfTheirOwn) {
  EXPECT_EQ(tree_.find_root("red"), nullptr);
  PrefixNode& red = tree_.find_or_add_root("red");
  EXPECT_EQ(&tree_.find_or_add_root("red"), &red);
  EXPECT_NE(&tree_.find_or_add_root("blue"), &red);
  tree_.remove_root(red);
  EXPECT_EQ(tree_.find_root("red"), nullptr);
}

}  // namespace
}  // namespace heddle::cache
