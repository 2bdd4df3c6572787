// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_merge.h"

#include <map>
#include <random>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler.h"

namespace heddle::tokenizer {
namespace {

using ::testing::ElementsAre;

// The definition, without any acceleration.
std::vector<TokenId> merge_naively(const std::vector<MergeRule>& rules,
                                   std::vector<TokenId> symbols) {
  std::map<std::pair<TokenId, TokenId>, Merge> table;
  for (const MergeRule& rule : rules) table[{rule.left, rule.right}] = rule.merge;
  while (true) {
    Merge best;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = table.find({symbols[i], symbols[i + 1]});
      if (found == table.end() || found->second.rank >= best.rank) continue;
      best = found->second;
      best_at = i;
    }
    if (!best.exists()) return symbols;
    symbols[best_at] = best.merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

std::vector<TokenId> merge(const std::vector<MergeRule>& rules, std::vector<TokenId> symbols) {
  MergeScratch scratch;
  scratch.symbols = std::move(symbols);
  CancellationPoll poll;
  EXPECT_TRUE(merge_symbols(MergeTable(rules), scratch, poll));
  return scratch.symbols;
}

TEST(BpeMerge, TakesTheLowestRankFirstAndTheLeftmostAmongEquals) {
  const std::vector<MergeRule> rules = {{1, 2, {0, 10}}, {0, 1, {1, 11}}, {0, 0, {2, 12}}};
  EXPECT_THAT(merge(rules, {0, 1, 2}), ElementsAre(0, 10));
  EXPECT_THAT(merge(rules, {0, 0, 0}), ElementsAre(12, 0));
  EXPECT_THAT(merge(rules, {0}), ElementsAre(0));
  EXPECT_THAT(merge(rules, {}), ElementsAre());
  EXPECT_THAT(merge({}, {0, 1}), ElementsAre(0, 1));
}

TEST(BpeMerge, TurnsToALowerRankThatAMergeBringsUp) {
  // Rank 0 needs the token 10, which rank 5 makes: it must then go before the other rank 5.
  const std::vector<MergeRule> rules = {{10, 2, {0, 20}}, {0, 1, {5, 10}}, {2, 0, {3, 30}}};
  EXPECT_EQ(merge(rules, {0, 1, 2, 0, 1}), merge_naively(rules, {0, 1, 2, 0, 1}));
  const std::vector<MergeRule> without = {{10, 2, {0, 20}}, {0, 1, {5, 10}}, {2, 0, {6, 30}}};
  EXPECT_THAT(merge(without, {0, 1, 2, 0, 1}), ElementsAre(20, 10));
}

TEST(BpeMerge, TheLastOfARepeatedPairCounts) {
  EXPECT_THAT(merge({{0, 1, {0, 10}}, {0, 1, {1, 11}}}, {0, 1}), ElementsAre(11));
}

// Random rules in random order over a few letters, so that ranks rise and fall along the way;
// lengths on both sides of the border between scanning and the heap.
TEST(BpeMerge, EqualsTheDefinitionForRandomRulesAndWords) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto num_letters = static_cast<TokenId>(1 + random() % 4);
    std::vector<MergeRule> rules;
    TokenId next = num_letters;
    std::vector<uint32_t> ranks(40);
    for (uint32_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
    std::shuffle(ranks.begin(), ranks.end(), random);
    for (const uint32_t rank : ranks) {
      const auto pick = [&] {
        return static_cast<TokenId>(random() % static_cast<unsigned>(next));
      };
      const TokenId left = pick();
      const TokenId right = pick();
      rules.push_back({left, right, {rank, next++}});
    }
    std::vector<TokenId> symbols(1 + random() % 400);
    for (TokenId& symbol : symbols) {
      symbol = static_cast<TokenId>(random() % static_cast<unsigned>(num_letters));
    }
    SCOPED_TRACE(round);
    ASSERT_EQ(merge(rules, symbols), merge_naively(rules, symbols));
  }
}

// Takes a fraction of a second; a quadratic merge would never come back.
TEST(BpeMerge, MergesAMillionEqualSymbols) {
  constexpr size_t kSymbols = HEDDLE_SANITIZED ? 64'000 : 1'000'000;
  std::vector<MergeRule> rules;
  for (TokenId id = 0; id < 6; ++id) rules.push_back({id, id, {static_cast<uint32_t>(id), id + 1}});
  const std::vector<TokenId> merged = merge(rules, std::vector<TokenId>(kSymbols, 0));
  EXPECT_EQ(merged, std::vector<TokenId>(kSymbols / 64, 6));
}

}  // namespace
}  // namespace heddle::tokenizer
