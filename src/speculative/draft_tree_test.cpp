// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_tree.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Nodes = std::vector<int32_t>;
using Tokens = std::vector<TokenId>;

struct Walked {
  Nodes path;
  Tokens drawn;
};

// `draws` by node.
Walked walk(const DraftTree& tree, const Tokens& draws) {
  Walked walked;
  tree.walk(
      [&](int32_t node) {
        walked.drawn.push_back(draws[static_cast<size_t>(node)]);
        return std::optional(walked.drawn.back());
      },
      walked.path);
  return walked;
}

std::vector<int32_t> positions(const DraftTree& tree, int32_t length) {
  std::vector<int32_t> of_nodes;
  for (const int32_t depth : tree.depths()) of_nodes.push_back(length + depth);
  return of_nodes;
}

// Example A, whose drafts TreeGrowthTest finds.
DraftTree example_a() {
  DraftTree tree;
  EXPECT_TRUE(tree.assign(Tokens{11, 12, 21, 23, 31}, Nodes{-1, -1, 0, 1, 2}).ok());
  return tree;
}

TEST(DraftTreeTest, ExampleAHasItsArrays) {
  const DraftTree tree = example_a();
  EXPECT_TRUE(tree.branches());
  EXPECT_THAT(tree.parents(), ElementsAre(-1, 0, 0, 1, 2, 3));
  EXPECT_THAT(tree.next_token(), ElementsAre(1, 3, 4, 5, -1, -1));
  EXPECT_THAT(tree.next_sibling(), ElementsAre(-1, 2, -1, -1, -1, -1));
  EXPECT_THAT(positions(tree, 7), ElementsAre(7, 8, 8, 9, 9, 10));
  EXPECT_THAT(tree.masks(), ElementsAre(0x01, 0x03, 0x05, 0x0b, 0x15, 0x2b));
}

TEST(DraftTreeTest, ExampleAIsWalkedAsItsTableSays) {
  const DraftTree tree = example_a();
  const auto expect_walk = [&](const Tokens& draws, const Nodes& path, const Tokens& drawn) {
    const Walked walked = walk(tree, draws);
    EXPECT_EQ(walked.path, path);
    EXPECT_EQ(walked.drawn, drawn);
  };
  expect_walk({12, 21, 23, 99, 98, 77}, {0, 2, 4}, {12, 23, 98});
  expect_walk({11, 21, 98, 31, 97, 77}, {0, 1, 3, 5}, {11, 21, 31, 77});
  expect_walk({11, 22, 55, 56, 57, 58}, {0, 1}, {11, 22});
  expect_walk({99, 1, 2, 3, 4, 5}, {0}, {99});
  expect_walk({12, 1, 24, 2, 3, 4}, {0, 2}, {12, 24});
}

TEST(DraftTreeTest, ExampleBHasItsArraysAndWalks) {
  DraftTree tree;
  ASSERT_TRUE(tree.assign(Tokens{11, 12, 21, 22, 23, 31}, Nodes{-1, -1, 0, 0, 1, 4}).ok());
  EXPECT_THAT(tree.next_token(), ElementsAre(1, 3, 5, -1, -1, 6, -1));
  EXPECT_THAT(tree.next_sibling(), ElementsAre(-1, 2, -1, 4, -1, -1, -1));
  EXPECT_THAT(positions(tree, 20), ElementsAre(20, 21, 21, 22, 22, 22, 23));
  EXPECT_THAT(tree.masks(), ElementsAre(0x01, 0x03, 0x05, 0x0b, 0x13, 0x25, 0x65));
  EXPECT_THAT(walk(tree, {12, 90, 23, 91, 92, 31, 40}).path, ElementsAre(0, 2, 5, 6));
  EXPECT_THAT(walk(tree, {12, 90, 23, 91, 92, 31, 40}).drawn, ElementsAre(12, 23, 31, 40));
  EXPECT_THAT(walk(tree, {11, 22, 90, 91, 41, 92, 93}).path, ElementsAre(0, 1, 4));
  EXPECT_THAT(walk(tree, {11, 22, 90, 91, 41, 92, 93}).drawn, ElementsAre(11, 22, 41));
}

TEST(DraftTreeTest, AChainHasOneChildForEachNode) {
  for (const Nodes& parents : {Nodes{}, Nodes{-1, 0, 1}}) {
    DraftTree tree;
    ASSERT_TRUE(tree.assign(Tokens{11, 21, 31}, parents).ok());
    EXPECT_FALSE(tree.branches());
    EXPECT_THAT(tree.next_token(), ElementsAre(1, 2, 3, -1));
    EXPECT_THAT(tree.next_sibling(), ElementsAre(-1, -1, -1, -1));
    EXPECT_THAT(positions(tree, 7), ElementsAre(7, 8, 9, 10));
    EXPECT_THAT(tree.masks(), IsEmpty());
    EXPECT_THAT(walk(tree, {11, 21, 32, 40}).path, ElementsAre(0, 1, 2));
  }
}

// A draw is made once at each node passed, and none elsewhere.
TEST(DraftTreeTest, EveryNodeOfThePathIsDrawnFromOnce) {
  const DraftTree tree = example_a();
  Nodes drawn_from, path;
  tree.walk(
      [&](int32_t node) {
        drawn_from.push_back(node);
        return std::optional<TokenId>(node == 0 ? 12 : 23);
      },
      path);
  EXPECT_EQ(drawn_from, path);
  tree.walk([](int32_t) { return std::optional<TokenId>(); }, path);
  EXPECT_THAT(path, ElementsAre(0)) << "the text ended";
}

TEST(DraftTreeTest, SaysWhatIsWrong) {
  DraftTree tree;
  EXPECT_THAT(tree.assign(Tokens{1, 2}, Nodes{-1, 1}).message(),
              HasSubstr("draft 1 follows draft 1"));
  EXPECT_THAT(tree.assign(Tokens{1, 2}, Nodes{-2, 0}).message(), HasSubstr("draft 0"));
  EXPECT_THAT(tree.assign(Tokens{1, 2}, Nodes{-1}).message(), HasSubstr("2 drafts have 1 parents"));
  EXPECT_THAT(tree.assign(Tokens(64), Nodes(64, -1)).message(), HasSubstr("at most 63"));
  EXPECT_TRUE(tree.assign(Tokens(63), Nodes(63, -1)).ok());
  EXPECT_TRUE(tree.assign(Tokens(200), {}).ok()) << "a chain may be longer";
}

// Compares arrays and walks of 100,000 random trees with ones computed from the parents alone.
TEST(DraftTreeTest, RandomTreesAreAsBruteForceSays) {
  std::mt19937_64 random(3);
  const auto below = [&](int64_t count) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(count));
  };
  DraftTree tree;
  for (int round = 0; round < 100000; ++round) {
    const int32_t num_drafts = below(round % 100 == 0 ? 64 : 12);
    Tokens tokens;
    Nodes parents;
    for (int32_t i = 0; i < num_drafts; ++i) {
      tokens.push_back(below(5));
      parents.push_back(below(i + 1) - 1);
    }
    ASSERT_TRUE(tree.assign(tokens, parents).ok());
    ASSERT_EQ(tree.num_nodes(), num_drafts + 1);
    std::map<int32_t, Nodes> children;  // of a node, ascending
    for (int32_t i = 0; i < num_drafts; ++i) {
      children[parents[static_cast<size_t>(i)] + 1].push_back(i + 1);
    }
    for (int32_t node = 0; node <= num_drafts; ++node) {
      uint64_t mask = 0;
      int32_t depth = -1;
      for (int32_t up = node; up >= 0;
           up = up == 0 ? -1 : parents[static_cast<size_t>(up - 1)] + 1) {
        mask |= uint64_t{1} << up;
        ++depth;
      }
      ASSERT_EQ(tree.depths()[static_cast<size_t>(node)], depth);
      if (tree.branches()) {
        ASSERT_EQ(tree.masks()[static_cast<size_t>(node)], mask);
      }
      Nodes found;
      for (int32_t child = tree.next_token()[static_cast<size_t>(node)]; child >= 0;
           child = tree.next_sibling()[static_cast<size_t>(child)]) {
        found.push_back(child);
      }
      ASSERT_EQ(found, children[node]);
    }
    Tokens draws(static_cast<size_t>(num_drafts) + 1);
    for (TokenId& draw : draws) draw = below(5);
    Nodes expected = {0};
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      const TokenId drawn = draws[static_cast<size_t>(expected.back())];
      for (int32_t i = 0; i < num_drafts && !goes_on; ++i) {
        const auto index = static_cast<size_t>(i);
        goes_on = parents[index] + 1 == expected.back() && tokens[index] == drawn;
        if (goes_on) expected.push_back(i + 1);
      }
    }
    ASSERT_THAT(walk(tree, draws).path, ElementsAreArray(expected));
  }
}

}  // namespace
}  // namespace heddle::speculative
