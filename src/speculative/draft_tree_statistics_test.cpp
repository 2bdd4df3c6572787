// SPDX-License-Identifier: Apache-2.0
// Texts that are verified along drafts have the distribution of plain draws, and drafts hold as
// often as their tokens are drawn. Draws are the sampler's own.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "sampling/sampler.h"
#include "sampling/sampler_reference.h"
#include "speculative/draft_tree.h"

namespace heddle::speculative {
namespace {

using sampling::Sampler;
using Tokens = std::vector<TokenId>;
using Parents = std::vector<int32_t>;

constexpr size_t kTokens = 6;
constexpr int64_t kPosition = 7;  // of the first draw

using Row = std::array<float, kTokens>;  // logits

// A model whose logits follow from the last token; kStart is what comes before all draws.
class Model {
 public:
  static constexpr size_t kStart = kTokens;

  explicit Model(SamplingParams params = {}) : params_(params) {
    const std::array<double, kTokens> first = {.05, .35, .2, .1, .25, .05};
    for (size_t i = 0; i < kTokens; ++i) {
      rows_[kStart][i] = static_cast<float>(std::log(first[i]));
    }
    std::mt19937 random(11);
    for (size_t last = 0; last < kTokens; ++last) {
      for (float& logit : rows_[last]) logit = static_cast<float>(random() % 300) / 100;
    }
  }

  TokenId draw(size_t last, uint64_t seed, int64_t position) {
    Row row = rows_[last];
    return sampler_.sample({.logits = row, .params = &params_, .seed = seed, .position = position})
        .value();
  }

  [[nodiscard]] std::vector<double> distribution(size_t last) const {
    return sampling::reference_distribution(rows_[last], params_, {}, {}).kept;
  }

 private:
  SamplingParams params_;
  std::array<Row, kTokens + 1> rows_{};
  Sampler sampler_{static_cast<int64_t>(kTokens)};
};

struct Drafted {
  Tokens tokens;
  Parents parents;
};

// Which position's coin the draw behind a node takes.
using CoinOf = int64_t (*)(int64_t position, int32_t depth);

int64_t own_coin(int64_t position, int32_t) { return position; }

int64_t coin_of_parent(int64_t position, int32_t depth) {
  return depth > 0 ? position - 1 : position;
}

struct Text {
  Tokens tokens;
  int64_t accepted = 0;  // of the first step
};

// Steps that verify the drafts, until the text has `length` tokens.
Text draw_text(Model& model, const DraftTree& tree, uint64_t seed, size_t length, CoinOf coin_of) {
  Text text;
  std::vector<int32_t> path;
  while (text.tokens.size() < length) {
    const size_t begin = text.tokens.size();
    const size_t before = begin == 0 ? Model::kStart : static_cast<size_t>(text.tokens.back());
    tree.walk(
        [&](int32_t node) {
          const size_t last = node == 0 ? before : static_cast<size_t>(tree.token(node));
          const int32_t depth = tree.depths()[static_cast<size_t>(node)];
          const int64_t position = kPosition + static_cast<int64_t>(begin) + depth;
          text.tokens.push_back(model.draw(last, seed, coin_of(position, depth)));
          return std::optional(text.tokens.back());
        },
        path);
    if (begin == 0) text.accepted = std::ssize(path) - 1;
  }
  text.tokens.resize(length);
  return text;
}

struct Counted {
  double chi_square = 0;
  int degrees = -1;
  int64_t accepted = 0;
};

// Texts of `length` tokens of so many seeds, against the product of the distributions.
Counted count_texts(Model& model, const Drafted& drafts, size_t length, int num_texts,
                    CoinOf coin_of = own_coin) {
  DraftTree tree;
  EXPECT_TRUE(tree.assign(drafts.tokens, drafts.parents).ok());
  size_t num_cells = 1;
  for (size_t i = 0; i < length; ++i) num_cells *= kTokens;
  std::vector<int64_t> counts(num_cells, 0);
  Counted counted;
  for (int seed = 0; seed < num_texts; ++seed) {
    const Text text = draw_text(model, tree, static_cast<uint64_t>(seed), length, coin_of);
    counted.accepted += text.accepted;
    size_t cell = 0;
    for (const TokenId token : text.tokens) cell = cell * kTokens + static_cast<size_t>(token);
    ++counts[cell];
  }
  for (size_t cell = 0; cell < num_cells; ++cell) {
    double probability = 1;
    size_t last = Model::kStart;
    size_t rest = cell;
    for (size_t place = num_cells / kTokens; place > 0; place /= kTokens) {
      const size_t token = rest / place;
      rest %= place;
      probability *= model.distribution(last)[token];
      last = token;
    }
    const double expected = probability * num_texts;
    if (expected == 0) {
      EXPECT_EQ(counts[cell], 0) << "cell " << cell << " was filtered";
      continue;
    }
    const double off = static_cast<double>(counts[cell]) - expected;
    counted.chi_square += off * off / expected;
    ++counted.degrees;
  }
  return counted;
}

// Children of the text, and of some of them.
const Drafted kFirst = {.tokens = {4, 1, 3}, .parents = {-1, -1, -1}};
const Drafted kTwoLevels = {.tokens = {4, 1, 3, 0, 5, 2, 1}, .parents = {-1, -1, -1, 0, 0, 1, 1}};

TEST(DraftTreeStatisticsTest, TheFirstTokenHasTheModelsDistribution) {
  Model model;
  constexpr int kTexts = 200000;
  const Counted counted = count_texts(model, kFirst, 1, kTexts);
  EXPECT_EQ(counted.degrees, 5);
  EXPECT_LT(counted.chi_square, 20.5);  // p = 0.001
  // As often as one of the three is drawn: 0.7; within four standard errors.
  EXPECT_NEAR(static_cast<double>(counted.accepted) / kTexts, 0.7,
              4 * std::sqrt(0.7 * 0.3 / kTexts));
}

TEST(DraftTreeStatisticsTest, PairsHaveTheProductOfTheDistributions) {
  Model model;
  const Counted counted = count_texts(model, kTwoLevels, 2, 200000);
  EXPECT_EQ(counted.degrees, 35);
  EXPECT_LT(counted.chi_square, 66.6);
}

// The test above can fail.
TEST(DraftTreeStatisticsTest, PairsShowACoinThatIsUsedTwice) {
  Model model;
  EXPECT_GT(count_texts(model, kTwoLevels, 2, 20000, coin_of_parent).chi_square, 1000);
}

TEST(DraftTreeStatisticsTest, RandomTreesAndFiltersKeepTheDistribution) {
  const std::vector<SamplingParams> all_params = {
      {}, {.top_k = 3}, {.top_p = 0.8f}, {.temperature = 0.6f, .top_p = 0.9f, .top_k = 5}};
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    Drafted drafts;
    // The first tree has no draft at all.
    for (int i = 0; i < 3 * round; ++i) {
      drafts.tokens.push_back(static_cast<TokenId>(random() % kTokens));
      drafts.parents.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(i + 1)) - 1);
    }
    Model model(all_params[static_cast<size_t>(round) % all_params.size()]);
    const Counted counted = count_texts(model, drafts, 2, 30000);
    // Wilson and Hilferty: beyond p = 0.0001 of a chi square of so many degrees.
    const double part = 2.0 / (9.0 * counted.degrees);
    EXPECT_LT(counted.chi_square, counted.degrees * std::pow(1 - part + 3.72 * std::sqrt(part), 3))
        << "round " << round << ", " << counted.degrees << " degrees";
  }
}

// The mean number of accepted drafts is the sum of the probabilities on the way.
TEST(DraftTreeStatisticsTest, DraftsHoldAsOftenAsTheyAreDrawn) {
  Model model;
  constexpr int kTexts = 100000;
  const Counted counted = count_texts(model, kTwoLevels, 1, kTexts);
  double expected = 0;
  for (size_t i = 0; i < kTwoLevels.tokens.size(); ++i) {
    const auto token = static_cast<size_t>(kTwoLevels.tokens[i]);
    const int32_t parent = kTwoLevels.parents[i];
    if (parent < 0) {
      expected += model.distribution(Model::kStart)[token];
    } else {
      const auto before = static_cast<size_t>(kTwoLevels.tokens[static_cast<size_t>(parent)]);
      expected += model.distribution(Model::kStart)[before] * model.distribution(before)[token];
    }
  }
  // At most two of a text hold: a standard error is at most 1 / sqrt(texts).
  EXPECT_NEAR(static_cast<double>(counted.accepted) / kTexts, expected, 4 / std::sqrt(kTexts));
}

}  // namespace
}  // namespace heddle::speculative
