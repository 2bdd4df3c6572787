// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <heddle/stop_pattern.h>

namespace heddle {
namespace {

bool matches(const StopPattern& pattern, std::string_view text) {
  StopPattern::State state = StopPattern::kStart;
  for (const char byte : text) {
    state = pattern.next(state, static_cast<uint8_t>(byte));
    if (state == StopPattern::kNone) return false;
  }
  return pattern.is_final(state);
}

TEST(StopPatternTest, MatchesWholeTexts) {
  const auto pattern = StopPattern::compile(R"(\n(User|Human) ?\d{1,2}:$)");
  ASSERT_TRUE(pattern.ok()) << pattern.status().message();
  EXPECT_TRUE(matches(**pattern, "\nUser 7:"));
  EXPECT_TRUE(matches(**pattern, "\nHuman42:"));
  EXPECT_FALSE(matches(**pattern, "\nUser 123:"));
  EXPECT_FALSE(matches(**pattern, "User 7:"));
  EXPECT_EQ((*pattern)->text(), R"(\n(User|Human) ?\d{1,2}:$)");
}

TEST(StopPatternTest, CharactersAreBytesOfUtf8) {
  const auto pattern = StopPattern::compile("[à-ü]{2}.");
  ASSERT_TRUE(pattern.ok()) << pattern.status().message();
  EXPECT_TRUE(matches(**pattern, "éü\U0001F600"));
  EXPECT_FALSE(matches(**pattern, "éx."));
}

TEST(StopPatternTest, KnowsWhereAMatchMayGoOn) {
  const auto pattern = StopPattern::compile("ab?");
  ASSERT_TRUE(pattern.ok()) << pattern.status().message();
  const StopPattern::State a = (*pattern)->next(StopPattern::kStart, 'a');
  EXPECT_TRUE((*pattern)->is_final(a) && (*pattern)->goes_on(a));
  const StopPattern::State b = (*pattern)->next(a, 'b');
  EXPECT_TRUE((*pattern)->is_final(b));
  EXPECT_FALSE((*pattern)->goes_on(b));
}

TEST(StopPatternTest, RefusesWhatCannotEndAText) {
  const auto refusal = [](std::string_view regex) {
    const auto pattern = StopPattern::compile(regex);
    return pattern.ok() ? std::string() : std::string(pattern.status().message());
  };
  EXPECT_THAT(refusal("(a"), ::testing::HasSubstr("a group without )"));
  EXPECT_THAT(refusal("a*"), ::testing::HasSubstr("the empty text"));
  EXPECT_THAT(refusal(""), ::testing::HasSubstr("the empty text"));
  EXPECT_THAT(refusal("a|^b"), ::testing::HasSubstr("has a ^"));
  EXPECT_THAT(refusal("[]"), ::testing::HasSubstr("matches nothing"));
  EXPECT_THAT(refusal("(?=a)b"), ::testing::HasSubstr("look-ahead"));
  EXPECT_THAT(refusal("(a|b)*a(a|b){12}"), ::testing::HasSubstr("more than 1024 states"));
  EXPECT_THAT(refusal("a{2000}"), ::testing::HasSubstr("more than 1024 states"));
  EXPECT_THAT(refusal("((a{1,50}){1,50}){1,50}"), ::testing::HasSubstr("more than 8192 states"));
  EXPECT_THAT(refusal(std::string(1025, 'a')), ::testing::HasSubstr("1025 bytes"));
  EXPECT_EQ(refusal("(a|b)*a(a|b){8}"), "");
}

}  // namespace
}  // namespace heddle
