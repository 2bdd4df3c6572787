// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AddedTokenMatcher matcher_of(const std::vector<AddedToken>& tokens) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens) matcher.add(token, token.content);
  matcher.finish();
  return matcher;
}

// "text" in quotes, tokens as numbers.
std::vector<std::string> split(const std::vector<AddedToken>& tokens, std::string_view text,
                               bool parse_special = true, size_t max_parts = 1000) {
  std::vector<std::string> parts;
  CancellationPoll poll;
  matcher_of(tokens).split(
      text, parse_special, poll,
      [&](std::string_view part) {
        parts.push_back("'" + std::string(part) + "'");
        return parts.size() < max_parts;
      },
      [&](TokenId id) {
        parts.push_back(std::to_string(id));
        return parts.size() < max_parts;
      });
  return parts;
}

TEST(AddedTokenMatcher, TakesTheLeftmostThenTheLongest) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<a"},
                                          {.id = 2, .content = "<a>"},
                                          {.id = 3, .content = "<a><b>"},
                                          {.id = 4, .content = "a>"}};
  EXPECT_THAT(split(tokens, "x<a>y"), ElementsAre("'x'", "2", "'y'"));
  EXPECT_THAT(split(tokens, "<a><b"), ElementsAre("2", "'<b'"));
  EXPECT_THAT(split(tokens, "<a><b><a"), ElementsAre("3", "1"));
  EXPECT_THAT(split(tokens, "ba>"), ElementsAre("'b'", "4"));
  EXPECT_THAT(split(tokens, ""), ElementsAre());
}

TEST(AddedTokenMatcher, EndsWhenAFunctionReturnsFalse) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<a>"}};
  const auto first = [&](size_t max_parts) {
    return split(tokens, "x<a>y<a>z", /*parse_special=*/true, max_parts);
  };
  EXPECT_THAT(first(1), ElementsAre("'x'"));
  EXPECT_THAT(first(2), ElementsAre("'x'", "1"));
  EXPECT_THAT(first(5), ElementsAre("'x'", "1", "'y'", "1", "'z'"));
}

TEST(AddedTokenMatcher, LeavesSpecialTokensInPlainText) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<end>", .special = true},
                                          {.id = 2, .content = "<think>"}};
  EXPECT_THAT(split(tokens, "a<end><think>", /*parse_special=*/false),
              ElementsAre("'a<end>'", "2"));
  EXPECT_THAT(split(tokens, "a<end><think>"), ElementsAre("'a'", "1", "2"));
}

TEST(AddedTokenMatcher, SingleWordsStandApart) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "ing", .single_word = true}};
  EXPECT_THAT(split(tokens, "sing"), ElementsAre("'sing'"));
  EXPECT_THAT(split(tokens, "ing ings"), ElementsAre("1", "' ings'"));
  EXPECT_THAT(split(tokens, "éing,ing!"), ElementsAre("'éing,'", "1", "'!'"));
}

TEST(AddedTokenMatcher, StripsTakeTheWhiteSpaceAround) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<l>", .lstrip = true},
                                          {.id = 2, .content = "<r>", .rstrip = true}};
  EXPECT_THAT(split(tokens, "a \u3000<l> b"), ElementsAre("'a'", "1", "' b'"));
  EXPECT_THAT(split(tokens, "a <r>\n b"), ElementsAre("'a '", "2", "'b'"));
  EXPECT_THAT(split(tokens, "<r>  <l>"), ElementsAre("2", "1"));  // taken once only
}

TEST(AddedTokenMatcher, EqualsASearchOfEveryTokenAtEveryByte) {
  std::mt19937 random(3);
  const auto random_text = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text.push_back("abc"[random() % 3]);
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<AddedToken> tokens;
    std::vector<std::string> seen;
    for (TokenId id = 0; id < 12; ++id) {
      const std::string content = random_text(1 + random() % 5);
      if (std::ranges::find(seen, content) != seen.end()) continue;
      seen.push_back(content);
      tokens.push_back({.id = id, .content = content});
    }
    const std::string text = random_text(60);
    std::vector<std::string> expected;
    std::string plain;
    for (size_t i = 0; i < text.size();) {
      const AddedToken* longest = nullptr;
      for (const AddedToken& token : tokens) {
        if (text.compare(i, token.content.size(), token.content) == 0 &&
            (longest == nullptr || token.content.size() > longest->content.size())) {
          longest = &token;
        }
      }
      if (longest == nullptr) {
        plain.push_back(text[i++]);
        continue;
      }
      if (!plain.empty()) expected.push_back("'" + std::exchange(plain, "") + "'");
      expected.push_back(std::to_string(longest->id));
      i += longest->content.size();
    }
    if (!plain.empty()) expected.push_back("'" + plain + "'");
    ASSERT_EQ(split(tokens, text), expected) << text;
  }
}

TEST(AddedTokens, RefusesContradictions) {
  AddedTokens tokens;
  ASSERT_TRUE(tokens.add({.id = 1, .content = "a", .special = true}).ok());
  EXPECT_TRUE(tokens.add({.id = 1, .content = "a"}).ok());
  EXPECT_TRUE(tokens.find("a")->special);  // the first flags stay
  EXPECT_THAT(tokens.add({.id = 1, .content = "b"}).message(), HasSubstr("have the id 1"));
  EXPECT_THAT(tokens.add({.id = 2, .content = "a"}).message(), HasSubstr("two ids, 1 and 2"));
  EXPECT_THAT(tokens.add({.id = 3, .content = ""}).message(), HasSubstr("empty content"));
  EXPECT_THAT(tokens.add({.id = -3, .content = "c"}).message(), HasSubstr("has the id -3"));
  EXPECT_EQ(tokens.end_id(), 2);
  EXPECT_EQ(tokens.find(7), nullptr);
}

}  // namespace
}  // namespace heddle::tokenizer
