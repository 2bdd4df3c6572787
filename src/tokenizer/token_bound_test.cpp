// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_bound.h"

#include <array>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace heddle::tokenizer {
namespace {

TEST(TokenBound, MeasuresAByteByTheLongestTokenThatHasIt) {
  TokenBound bound;
  bound.add("abcd");
  bound.add("--------");
  bound.add("a-");
  bound.finish();
  EXPECT_EQ(bound.min_tokens(""), 0u);
  EXPECT_EQ(bound.min_tokens("abcdabcd"), 2u);
  EXPECT_EQ(bound.min_tokens("aaaa"), 1u);
  EXPECT_EQ(bound.min_tokens("----------------"), 2u);
  EXPECT_EQ(bound.min_tokens("zzz"), 3u) << "in no token but its own";
}

TEST(TokenBound, IsZeroBeforeItIsFinished) {
  TokenBound bound;
  bound.add("ab");
  EXPECT_EQ(bound.min_tokens(std::string(1000, 'z')), 0u);
}

TEST(TokenBound, OfAnyBytesTheLongestTokenCounts) {
  TokenBound bound;
  bound.add("abcd");
  bound.finish_for_any_bytes();
  EXPECT_EQ(bound.min_tokens("zzzzz"), 2u);
}

TEST(TokenBound, AnAliasCountsAsItsText) {
  TokenBound bound;
  bound.add("▁▁");  // six bytes
  bound.finish();
  bound.set_alias(' ', "▁");
  EXPECT_EQ(bound.min_tokens("    "), 2u);
  EXPECT_EQ(bound.min_tokens("▁▁ "), 2u);
}

TEST(TokenBound, IsNeverMoreThanTheTokensOfAText) {
  constexpr std::array<std::string_view, 9> kTokens = {"a",  "ab", "abc", "cccccccc",         "bca",
                                                       "zz", "z",  "cz",  "aaaaaaaaaaaaaaaaa"};
  TokenBound bound;
  for (const std::string_view token : kTokens) bound.add(token);
  bound.finish();
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const size_t num_tokens = random() % 40;
    for (size_t i = 0; i < num_tokens; ++i) text += kTokens[random() % kTokens.size()];
    ASSERT_LE(bound.min_tokens(text), num_tokens) << text;
  }
}

}  // namespace
}  // namespace heddle::tokenizer
