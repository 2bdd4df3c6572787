// SPDX-License-Identifier: Apache-2.0
#include "speculative/text_index.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<TokenId>;

void append(TextIndex& index, const Tokens& tokens) {
  for (const TokenId token : tokens) index.append(token);
}

Tokens after(const TextIndex& index, const Tokens& tokens, int64_t most, bool goes_on = false) {
  Tokens out;
  std::vector<TextIndex::Match> matches;
  index.find(tokens, 1, matches);
  if (!matches.empty()) index.following(matches.front(), most, goes_on, out);
  return out;
}

TEST(TextIndexTest, FindsTheLongestEndAndTheLatestOfEqualOnes) {
  TextIndex index(64);
  append(index, {1, 2, 3, 40, 9, 1, 2, 3, 41, 7, 1, 2, 3, 42, 8});
  EXPECT_THAT(after(index, {1, 2, 3}, 1), ElementsAre(42)) << "the latest";
  EXPECT_THAT(after(index, {9, 1, 2, 3}, 2), ElementsAre(41, 7)) << "the longest";
  EXPECT_THAT(after(index, {5, 2, 3}, 2), IsEmpty()) << "two tokens are not enough";
  EXPECT_THAT(after(index, {2, 3}, 2), IsEmpty());
}

TEST(TextIndexTest, ATextThatRepeatsItselfIsCopiedRoundAndRound) {
  TextIndex index(64);
  append(index, {1, 2, 3, 4, 1, 2, 3, 4});
  const Tokens text = {1, 2, 3, 4, 1, 2, 3, 4};
  EXPECT_THAT(after(index, text, 10, true), ElementsAre(1, 2, 3, 4, 1, 2, 3, 4, 1, 2));
  EXPECT_THAT(after(index, text, 10, false), ElementsAre(1, 2, 3, 4));
}

TEST(TextIndexTest, NothingGoesFromOneTextToTheNext) {
  TextIndex index(64);
  append(index, {1, 2, 3, 4});
  index.end_text();
  append(index, {5, 6, 7, 8});
  EXPECT_THAT(after(index, {1, 2, 3}, 5), ElementsAre(4));
  EXPECT_THAT(after(index, {2, 3, 4}, 5), IsEmpty());
  EXPECT_THAT(after(index, {3, 4, 5}, 5), IsEmpty());
}

TEST(TextIndexTest, RemembersAllTextsUpToItsCapacity) {
  TextIndex index(1024);
  for (int i = 0; i < 90; ++i) {
    append(index, {1000 + i, 2000 + i, 3000 + i, 4000 + i, 5000 + i});
    index.end_text();
  }
  for (int i = 0; i < 90; ++i) {
    EXPECT_THAT(after(index, {1000 + i, 2000 + i, 3000 + i}, 5), ElementsAre(4000 + i, 5000 + i));
  }
  for (int i = 90; i < 300; ++i) append(index, {1000 + i, 2000 + i, 3000 + i, 4000 + i, 5000 + i});
  EXPECT_THAT(after(index, {1003, 2003, 3003}, 5), IsEmpty()) << "the oldest are forgotten";
  EXPECT_THAT(after(index, {1298, 2298, 3298}, 2), ElementsAre(4298, 5298));
}

TEST(TextIndexTest, WaysThatGoOnDifferentlyAreFoundOnceEach) {
  TextIndex index(64);
  append(index, {1, 2, 3, 40, 9, 1, 2, 3, 41, 7, 1, 2, 3, 40, 8, 1, 2, 3});
  index.end_text();
  append(index, {5, 6});
  const auto ways = [&](const Tokens& tokens, size_t most) {
    std::vector<TextIndex::Match> matches;
    index.find(tokens, most, matches);
    Tokens firsts;
    for (const TextIndex::Match& match : matches) index.following(match, 1, false, firsts);
    return firsts;
  };
  EXPECT_THAT(ways({1, 2, 3}, 4), ElementsAre(40, 41)) << "the latest first; a text's end is none";
  EXPECT_THAT(ways({9, 1, 2, 3}, 4), ElementsAre(41, 40)) << "the longest first";
  EXPECT_THAT(ways({9, 1, 2, 3}, 1), ElementsAre(41));
  EXPECT_THAT(ways({5, 2, 3}, 4), IsEmpty());
}

// Against a search of all of what is remembered, in random texts of few letters.
TEST(TextIndexTest, FindsWhatASearchOfTheWholeTextFinds) {
  std::mt19937 random(5);
  const auto below = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  int64_t found = 0;
  for (int round = 0; round < 300; ++round) {
    const int num_letters = 3 + below(5);
    TextIndex index(64);
    Tokens text;
    for (int i = 20 + below(200); i > 0; --i) {
      text.push_back(below(num_letters));
      index.append(text.back());
    }
    const auto size = std::ssize(text);
    const int64_t first = std::max<int64_t>(size - 64, 0);
    std::map<TokenId, int64_t> longest;  // by the token that went on
    int num_candidates = 0;
    for (int64_t end = size - 1; end > first; --end) {
      int64_t length = 0;
      while (length < TextIndex::kMaxMatch && end - 1 - length >= first &&
             text[static_cast<size_t>(end - 1 - length)] ==
                 text[static_cast<size_t>(size - 1 - length)]) {
        ++length;
      }
      if (length < TextIndex::kMinMatch) continue;
      ++num_candidates;
      int64_t& of_token = longest[text[static_cast<size_t>(end)]];
      of_token = std::max(of_token, length);
    }
    if (num_candidates >= TextIndex::kMaxCandidates - 1) continue;
    std::vector<TextIndex::Match> matches;
    index.find(text, 8, matches);
    ASSERT_EQ(matches.size(), longest.size()) << "round " << round;
    ASSERT_TRUE(std::ranges::is_sorted(matches, std::ranges::greater(), &TextIndex::Match::length));
    for (const TextIndex::Match& match : matches) {
      Tokens next;
      index.following(match, 1, /*goes_on=*/false, next);
      ASSERT_EQ(match.length, longest[next.front()]) << "round " << round;
    }
    const std::vector<TextIndex::Match> all = matches;
    index.find(text, 1, matches);
    ASSERT_EQ(matches.empty(), all.empty());
    if (all.empty()) continue;
    ASSERT_EQ(matches.front().length, all.front().length);
    ++found;
  }
  EXPECT_GT(found, 30);
}

}  // namespace
}  // namespace heddle::speculative
