// SPDX-License-Identifier: Apache-2.0
#include "grammar/spelling.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/nfa.h"

namespace heddle::grammar {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Tokens in the order of their merges.
std::vector<std::string> spelled(const std::vector<std::string>& vocabulary,
                                 std::string_view text) {
  std::vector<TokenTrie::Entry> entries;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    entries.emplace_back(vocabulary[i], static_cast<TokenId>(i));
  }
  std::vector<TokenId> tokens;
  spell(TokenTrie(std::move(entries)), text, tokens);
  std::vector<std::string> texts;
  for (const TokenId token : tokens) texts.push_back(vocabulary[static_cast<size_t>(token)]);
  return texts;
}

TEST(SpellingTest, NeighboursOfTheLowestIdAreJoinedFirst) {
  EXPECT_THAT(spelled({"c", "e", "n", "t", "s", "en", "ts", "ce", "ents", "cent"}, "cents"),
              ElementsAre("c", "ents"));
  EXPECT_THAT(spelled({"c", "e", "n", "t", "s", "ce", "nt", "cent", "en", "ents"}, "cents"),
              ElementsAre("cent", "s"));
  EXPECT_THAT(spelled({"a", "aa", "aaaa"}, "aaaaaaa"), ElementsAre("aaaa", "aa", "a"));
}

TEST(SpellingTest, ATokenThatNoMergeMakesIsNotUsed) {
  EXPECT_THAT(spelled({"a", "b", "c", "abc"}, "abc"), ElementsAre("a", "b", "c"));
}

TEST(SpellingTest, EndsBeforeAByteThatIsPartOfNoToken) {
  EXPECT_THAT(spelled({"a", "b", "ab"}, "abxab"), ElementsAre("ab"));
  EXPECT_THAT(spelled({"a"}, "xa"), IsEmpty());
  EXPECT_THAT(spelled({"a"}, ""), IsEmpty());
}

TEST(SpellingTest, ASpecialTokenIsJoinedWithNothing) {
  const std::string mark = special_token_bytes("ab");
  EXPECT_THAT(spelled({"a", "b", "ab", mark}, "ab" + mark + "ab"), ElementsAre("ab", mark, "ab"));
  EXPECT_THAT(spelled({"a", "b", mark}, "a" + mark.substr(0, 3)), ElementsAre("a")) << "cut off";
  EXPECT_THAT(spelled({"a", "b"}, "a" + mark), ElementsAre("a")) << "not of the vocabulary";
}

TEST(SpellingTest, OfTwoTokensWithOneTextTheLaterIsTheUsualOne) {
  const TokenTrie trie({{"a", 3}, {"a", 70}});
  std::vector<TokenId> tokens;
  spell(trie, "aa", tokens);
  EXPECT_THAT(tokens, ElementsAre(70, 70));
}

TEST(SpellingTest, TheLongestTextIsSpelled) {
  std::vector<TokenId> tokens = {5};
  spell(TokenTrie({{"a", 1}}), std::string(kMaxSpelledBytes, 'a'), tokens);
  EXPECT_EQ(tokens.size(), 1 + kMaxSpelledBytes) << "those before stay";
}

}  // namespace
}  // namespace heddle::grammar
