// SPDX-License-Identifier: Apache-2.0
#include "speculative/tree_growth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using Level = std::vector<Candidate>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Example A: topk 2, three levels, six tokens.
TEST(TreeGrowthTest, ExampleAGrowsAsItsTableSays) {
  TreeGrowth growth;
  growth.begin(Level{{11, .60f}, {12, .28f}});
  growth.add_level(Level{{21, .50f}, {22, .35f}, {23, .80f}, {24, .10f}});
  ASSERT_EQ(growth.branches().size(), 2u);
  EXPECT_EQ(growth.branches()[0].token, 21);
  EXPECT_EQ(growth.branches()[0].from, 0);
  EXPECT_EQ(growth.branches()[1].token, 23);
  EXPECT_EQ(growth.branches()[1].from, 1);
  growth.add_level(Level{{31, .90f}, {32, .05f}, {33, .50f}, {34, .30f}});
  const std::vector<float> scores = {.60f,  .28f, .30f,  .21f,  .224f,
                                     .028f, .27f, .015f, .112f, .0672f};
  EXPECT_THAT(growth.scores(), Pointwise(FloatNear(1e-6f), scores));
  EXPECT_THAT(growth.tokens(), ElementsAre(11, 12, 21, 22, 23, 24, 31, 32, 33, 34));
  EXPECT_THAT(growth.parent_list(), ElementsAre(-1, 0, 1, 2, 4));
  Drafts drafts;
  growth.select(5, drafts);
  EXPECT_THAT(growth.selected(), ElementsAre(0, 1, 2, 4, 6));
  EXPECT_THAT(drafts.tokens, ElementsAre(11, 12, 21, 23, 31));
  EXPECT_THAT(drafts.parents, ElementsAre(-1, -1, 0, 1, 2));
}

// Example B: the branches of the second level change places.
TEST(TreeGrowthTest, ExampleBGrowsAsItsTableSays) {
  TreeGrowth growth;
  growth.begin(Level{{11, .5f}, {12, .4f}});
  growth.add_level(Level{{21, .30f}, {22, .28f}, {23, .9f}, {24, .05f}});
  EXPECT_EQ(growth.branches()[0].token, 23);
  EXPECT_EQ(growth.branches()[0].from, 1);
  EXPECT_EQ(growth.branches()[1].token, 21);
  EXPECT_EQ(growth.branches()[1].from, 0);
  growth.add_level(Level{{31, .7f}, {32, .2f}, {33, .6f}, {34, .1f}});
  EXPECT_THAT(growth.parent_list(), ElementsAre(-1, 0, 1, 4, 2));
  Drafts drafts;
  growth.select(6, drafts);
  EXPECT_THAT(growth.selected(), ElementsAre(0, 1, 2, 3, 4, 6));
  EXPECT_THAT(drafts.tokens, ElementsAre(11, 12, 21, 22, 23, 31));
  EXPECT_THAT(drafts.parents, ElementsAre(-1, -1, 0, 0, 1, 4));
}

TEST(TreeGrowthTest, OneBranchIsAChain) {
  TreeGrowth growth;
  growth.begin(Level{{11, .9f}});
  growth.add_level(Level{{21, .1f}});
  growth.add_level(Level{{31, .5f}});
  EXPECT_THAT(growth.parent_list(), ElementsAre(-1, 0, 1));
  Drafts drafts;
  growth.select(3, drafts);
  EXPECT_THAT(drafts.tokens, ElementsAre(11, 21, 31));
  EXPECT_TRUE(is_chain(drafts.parents));
}

// With topk 2, three levels have 2 + 4 + 4 candidates and two of them go on.
TEST(TreeGrowthTest, AShapeKnowsHowManyCandidatesAndBranchesItHas) {
  const TreeShape shape{.topk = 2, .num_steps = 3, .num_drafts = 5};
  EXPECT_EQ(shape.num_candidates(), 10);
  EXPECT_EQ(shape.num_branches(), 4);
  EXPECT_EQ((TreeShape{.topk = 4, .num_steps = 1, .num_drafts = 3}).num_candidates(), 4);
  EXPECT_EQ((TreeShape{.topk = 4, .num_steps = 1, .num_drafts = 3}).num_branches(), 0);
}

// A child that is certain scores as its parent: at the cut the parent is chosen.
TEST(TreeGrowthTest, EqualScoresGoToTheFirst) {
  TreeGrowth growth;
  growth.begin(Level{{11, .5f}, {12, .5f}});
  growth.add_level(Level{{21, 1.f}, {22, 0.f}, {23, 1.f}, {24, 0.f}});
  for (const auto& [count, tokens] : std::map<int64_t, std::vector<TokenId>>{
           {1, {11}}, {2, {11, 12}}, {3, {11, 12, 21}}, {4, {11, 12, 21, 23}}}) {
    Drafts drafts;
    growth.select(count, drafts);
    EXPECT_EQ(drafts.tokens, tokens);
  }
}

// Logits that are not numbers give no drafts, and no crash.
TEST(TreeGrowthTest, DropsCandidatesWithoutAScore) {
  TreeGrowth growth;
  Drafts drafts;
  growth.begin(Level{{11, kNan}, {12, kNan}});
  growth.add_level(Level{{21, .5f}, {22, .5f}, {23, .5f}, {24, .5f}});
  growth.select(5, drafts);
  EXPECT_THAT(drafts.tokens, IsEmpty());

  growth.begin(Level{{11, .5f}, {12, kNan}});
  growth.add_level(Level{{21, .5f}, {22, kNan}, {23, .9f}, {24, .9f}});
  growth.add_level(Level{{31, kNan}, {32, .5f}, {33, .9f}, {34, .9f}});
  growth.select(9, drafts);
  EXPECT_THAT(drafts.tokens, ElementsAre(11, 21, 32));
  EXPECT_THAT(drafts.parents, ElementsAre(-1, 0, 1));
}

// A child above its parent, which only a wrong probability makes: it is dropped with its children.
TEST(TreeGrowthTest, ANodeWhoseParentIsNotChosenIsDropped) {
  TreeGrowth growth;
  growth.begin(Level{{11, .5f}, {12, .1f}});
  growth.add_level(Level{{21, .1f}, {22, .1f}, {23, 4.f}, {24, .1f}});
  growth.add_level(Level{{31, .9f}, {32, .1f}, {33, .1f}, {34, .1f}});
  Drafts drafts;
  growth.select(3, drafts);
  EXPECT_THAT(drafts.tokens, ElementsAre(11)) << "23 and 31 follow 12, which is none of the best";
}

// 100,000 random trees: the selection against a plain description of it.
TEST(TreeGrowthTest, RandomTreesAreAsBruteForceSays) {
  struct Node {
    float score = 0;
    TokenId token = 0;
    int64_t parent = -1;
  };

  std::mt19937_64 random(5);
  const auto below = [&](int64_t count) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
  };
  TreeGrowth growth;
  Drafts drafts;
  for (int round = 0; round < 100000; ++round) {
    const auto k = static_cast<size_t>(1 + below(4));
    const int64_t levels = 1 + below(4);
    TokenId next_token = 0;
    const auto top = [&](size_t rows) {
      Level level;
      for (size_t row = 0; row < rows; ++row) {
        Level of_row;  // coarse, so that many are equal
        for (size_t i = 0; i < k; ++i) {
          of_row.push_back({next_token++, static_cast<float>(below(9)) / 8});
        }
        std::ranges::stable_sort(of_row, std::greater(), &Candidate::probability);
        level.insert(level.end(), of_row.begin(), of_row.end());
      }
      return level;
    };
    std::vector<Node> nodes;
    std::vector<int64_t> branches;
    const Level first = top(1);
    growth.begin(first);
    for (const Candidate& candidate : first) {
      branches.push_back(std::ssize(nodes));
      nodes.push_back({candidate.probability, candidate.token, -1});
    }
    for (int64_t level = 1; level < levels; ++level) {
      const Level more = top(k);
      growth.add_level(more);
      const int64_t begin = std::ssize(nodes);
      for (size_t i = 0; i < more.size(); ++i) {
        const int64_t parent = branches[i / k];
        nodes.push_back({nodes[static_cast<size_t>(parent)].score * more[i].probability,
                         more[i].token, parent});
      }
      std::vector<int64_t> order;
      for (int64_t i = begin; i < std::ssize(nodes); ++i) order.push_back(i);
      const auto score = [&](int64_t i) { return nodes[static_cast<size_t>(i)].score; };
      std::ranges::stable_sort(order, std::greater(), score);
      order.resize(k);
      branches = order;
    }
    const int64_t count = 1 + below(std::ssize(nodes));
    growth.select(count, drafts);
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < std::ssize(nodes); ++i) {
      int64_t better = 0;  // of all nodes
      for (int64_t j = 0; j < std::ssize(nodes); ++j) {
        const float a = nodes[static_cast<size_t>(j)].score,
                    b = nodes[static_cast<size_t>(i)].score;
        better += a > b || (a == b && j < i) ? 1 : 0;
      }
      if (better < count) chosen.push_back(i);
    }
    ASSERT_EQ(std::ssize(drafts.tokens), count);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const Node& node = nodes[static_cast<size_t>(chosen[i])];
      ASSERT_EQ(drafts.tokens[i], node.token);
      const int64_t parent =
          node.parent < 0 ? -1 : std::ranges::find(chosen, node.parent) - chosen.begin();
      ASSERT_EQ(drafts.parents[i], parent) << "the parent is among the chosen";
    }
  }
}

TEST(MostProbableTest, GivesTheLargestOfASoftmax) {
  Level top;
  most_probable(std::vector<float>{0.f, 2.f, 1.f, 2.f, -1.f}, 3, top);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 1) << "the first of two";
  EXPECT_EQ(top[1].token, 3);
  EXPECT_EQ(top[2].token, 2);
  const float sum = 1 + 2 * std::exp(2.f) + std::exp(1.f) + std::exp(-1.f);
  EXPECT_NEAR(top[0].probability, std::exp(2.f) / sum, 1e-6);
  EXPECT_NEAR(top[2].probability, std::exp(1.f) / sum, 1e-6);
  most_probable(std::vector<float>{1.f, 2.f}, 3, top);
  EXPECT_EQ(top.size(), 2u);
  most_probable(std::vector<float>{1.f, kNan, 3.f}, 2, top);
  EXPECT_THAT(top, IsEmpty());
}

}  // namespace
}  // namespace heddle::speculative
