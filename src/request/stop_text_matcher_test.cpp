// SPDX-License-Identifier: Apache-2.0
#include "request/stop_text_matcher.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace heddle::request {
namespace {

struct Outcome {
  std::string text;
  int match = StopTextMatcher::kNoMatch;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(const std::vector<std::string>& texts, const std::vector<std::string>& pieces,
            bool keep_match = false) {
  StopTextMatcher matcher(texts, keep_match);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.match = matcher.push(piece, true, outcome.text);
    if (outcome.match != StopTextMatcher::kNoMatch) return outcome;
  }
  matcher.finish(outcome.text);
  return outcome;
}

// The statement of the behaviour: try every end in order.
Outcome naive(const std::vector<std::string>& texts, const std::string& input, bool keep_match) {
  for (size_t end = 1; end <= input.size(); ++end) {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].size() > end) continue;
      if (input.compare(end - texts[i].size(), texts[i].size(), texts[i]) != 0) continue;
      return {input.substr(0, keep_match ? end : end - texts[i].size()), static_cast<int>(i)};
    }
  }
  return {input, StopTextMatcher::kNoMatch};
}

TEST(StopTextMatcherTest, HoldsBackWhatMayBecomeAStopTextAndReleasesItWhenItDoesNot) {
  StopTextMatcher matcher({"END"}, false);
  std::string text;
  EXPECT_EQ(matcher.push("abE", true, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(matcher.push("N", true, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(matcher.num_held_back(), 2u);
  EXPECT_EQ(matcher.push("x", true, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "abENx");
}

TEST(StopTextMatcherTest, CutsTheTextAtAStopTextThatSpansPieces) {
  EXPECT_EQ(run({"END"}, {"abE", "N", "Dz"}), (Outcome{"ab", 0}));
  EXPECT_EQ(run({"END"}, {"abE", "N", "Dz"}, true), (Outcome{"abEND", 0}));
}

TEST(StopTextMatcherTest, ReportsTheStopTextThatEndsFirstAndAmongEqualsTheFirstListed) {
  EXPECT_EQ(run({"longer stop", "stop"}, {"a longer stop"}), (Outcome{"a ", 0}));
  EXPECT_EQ(run({"stop", "longer stop"}, {"a longer stop"}), (Outcome{"a longer ", 0}));
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", 1}));
}

TEST(StopTextMatcherTest, PassesOverCompleteStopTextsWhileTheyMayNotMatch) {
  StopTextMatcher matcher({"aa"}, false);
  std::string text;
  EXPECT_EQ(matcher.push("xaa", false, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "xa");  // the last a may begin another one
  EXPECT_EQ(matcher.push("a", true, text), 0);
  EXPECT_EQ(text, "xa");
}

TEST(StopTextMatcherTest, TakesNothingAfterAMatchAndPassesEverythingWithoutStopTexts) {
  StopTextMatcher matcher({"!"}, false);
  std::string text;
  EXPECT_EQ(matcher.push("a!b", true, text), 0);
  EXPECT_EQ(matcher.push("c!", true, text), StopTextMatcher::kNoMatch);
  matcher.finish(text);
  EXPECT_EQ(text, "a");
  EXPECT_EQ(run({}, {"any", "thing"}), (Outcome{"anything", StopTextMatcher::kNoMatch}));
}

TEST(StopTextMatcherTest, AgreesWithTryingEveryEndOnRandomTextsCutAnywhere) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto word = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>('a' + below(3));
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> texts;
    for (size_t i = 0, n = 1 + below(4); i < n; ++i) texts.push_back(word(1 + below(6)));
    const std::string input = word(below(40));
    std::vector<std::string> pieces;
    for (size_t at = 0; at < input.size();) {
      const size_t size = std::min(input.size() - at, below(5));
      pieces.push_back(input.substr(at, size));
      at += size;
    }
    const bool keep_match = below(2) == 1;
    ASSERT_EQ(run(texts, pieces, keep_match), naive(texts, input, keep_match))
        << fmt::format("round {}: {} in {}", round, texts[0], input);
  }
}

TEST(StopTextMatcherTest, StaysLinearOnTextsMadeToBacktrack) {
  const std::string almost = std::string(4000, 'a') + "b";
  StopTextMatcher matcher(std::vector<std::string>(16, almost), false);
  std::string text;
  const std::string piece(100, 'a');
  for (int i = 0; i < 1000; ++i)
    matcher.push(piece, true, text);  // quadratic work would take minutes
  matcher.finish(text);
  EXPECT_EQ(text.size(), 100000u);
}

}  // namespace
}  // namespace heddle::request
