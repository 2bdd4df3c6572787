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
  StopTextMatcher matcher({.texts = texts, .keep_stop_text = keep_match});
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
  StopTextMatcher matcher({.texts = {"END"}});
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
  StopTextMatcher matcher({.texts = {"aa"}});
  std::string text;
  EXPECT_EQ(matcher.push("xaa", false, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "xa");  // the last a may begin another one
  EXPECT_EQ(matcher.push("a", true, text), 0);
  EXPECT_EQ(text, "xa");
}

TEST(StopTextMatcherTest, TakesNothingAfterAMatchAndPassesEverythingWithoutStopTexts) {
  StopTextMatcher matcher({.texts = {"!"}});
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
  StopTextMatcher matcher({.texts = std::vector<std::string>(16, almost)});
  std::string text;
  const std::string piece(100, 'a');
  for (int i = 0; i < 1000; ++i)
    matcher.push(piece, true, text);  // quadratic work would take minutes
  matcher.finish(text);
  EXPECT_EQ(text.size(), 100000u);
}

std::shared_ptr<const StopPattern> pattern_of(const std::string& regex) {
  auto pattern = StopPattern::compile(regex);
  EXPECT_TRUE(pattern.ok()) << regex << ": " << pattern.status().message();
  return *pattern;
}

TEST(StopTextMatcherTest, APatternEndsTheTextWhereItFirstMatchesAndIsCutWhole) {
  StopTextMatcher matcher({.patterns = {pattern_of(R"(\n+(Q|A)\d*:)")}});
  std::string text;
  EXPECT_EQ(matcher.push("one\n", true, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "one");
  EXPECT_EQ(matcher.push("two\n\nA1", true, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "one\ntwo");
  EXPECT_EQ(matcher.num_held_back(), 4u);
  EXPECT_EQ(matcher.push("2: b", true, text), 0);
  EXPECT_EQ(text, "one\ntwo");
}

TEST(StopTextMatcherTest, TextsComeBeforePatternsThatEndWithThem) {
  StopTextMatcher matcher(
      {.texts = {"x", "bc"}, .patterns = {pattern_of("[ab]+c"), pattern_of("c")}});
  std::string text;
  EXPECT_EQ(matcher.push("zabc", true, text), 1);
  EXPECT_EQ(text, "za");
  StopTextMatcher patterns({.texts = {"x"}, .patterns = {pattern_of("d"), pattern_of("[ab]+c")}});
  text.clear();
  EXPECT_EQ(patterns.push("zabc", true, text), 2);
  EXPECT_EQ(text, "z");
}

TEST(StopTextMatcherTest, APatternThatWasPassedOverMayGoOn) {
  StopTextMatcher matcher({.patterns = {pattern_of("ab*")}, .keep_stop_text = true});
  std::string text;
  EXPECT_EQ(matcher.push("xab", false, text), StopTextMatcher::kNoMatch);
  EXPECT_EQ(text, "x");
  EXPECT_EQ(matcher.push("b", true, text), 0);
  EXPECT_EQ(text, "xabb");
}

// Every end in order, and for it every begin.
Outcome naive_pattern(const StopPattern& pattern, const std::string& input, bool keep_match) {
  for (size_t end = 1; end <= input.size(); ++end) {
    for (size_t begin = 0; begin < end; ++begin) {
      StopPattern::State state = StopPattern::kStart;
      for (size_t at = begin; at < end && state != StopPattern::kNone; ++at) {
        state = pattern.next(state, static_cast<uint8_t>(input[at]));
      }
      if (state == StopPattern::kNone || !pattern.is_final(state)) continue;
      return {input.substr(0, keep_match ? end : begin), 0};
    }
  }
  return {input, StopTextMatcher::kNoMatch};
}

TEST(StopTextMatcherTest, APatternAgreesWithTryingEveryPlaceOnRandomTextsCutAnywhere) {
  std::mt19937 random(11);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::vector<std::shared_ptr<const StopPattern>> patterns = {pattern_of("ab+c"),
                                                                    pattern_of("a(b|c)*a"),
                                                                    pattern_of("(aa|aab)c?b"),
                                                                    pattern_of("a.{2,3}c"),
                                                                    pattern_of("b[^a]b"),
                                                                    pattern_of("(abc){2}|cca"),
                                                                    pattern_of("(a|b)*a(a|b){3}c")};
  size_t num_matches = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto& pattern = patterns[below(patterns.size())];
    std::string input;
    for (size_t i = 0, n = below(30); i < n; ++i) input += static_cast<char>('a' + below(3));
    const bool keep_match = below(2) == 1;
    StopTextMatcher matcher({.patterns = {pattern}, .keep_stop_text = keep_match});
    Outcome outcome;
    const Outcome expected = naive_pattern(*pattern, input, keep_match);
    for (size_t at = 0; at < input.size() && outcome.match == StopTextMatcher::kNoMatch;) {
      const size_t size = std::min(input.size() - at, 1 + below(5));
      outcome.match = matcher.push(input.substr(at, size), true, outcome.text);
      ASSERT_TRUE(expected.text.starts_with(outcome.text)) << pattern->text() << " in " << input;
      at += size;
    }
    if (outcome.match == StopTextMatcher::kNoMatch) matcher.finish(outcome.text);
    ASSERT_EQ(outcome, expected) << pattern->text() << " in " << input;
    num_matches += outcome.match == 0 ? 1 : 0;
  }
  EXPECT_GT(num_matches, 5000u);
}

TEST(StopTextMatcherTest, HoldsBackNoMoreThanAMatchMayBeLong) {
  StopTextMatcher matcher({.patterns = {pattern_of("a{900}b")}});
  std::string text;
  for (int i = 0; i < 200; ++i) matcher.push(std::string(100, 'a'), true, text);
  EXPECT_EQ(matcher.num_held_back(), 900u);
  EXPECT_EQ(text.size(), 19100u);
}

TEST(StopTextMatcherTest, APatternThatMayBeginAtEveryByteIsFollowedOnceAState) {
  StopTextMatcher matcher({.patterns = {pattern_of("a+b")}});
  std::string text;
  const std::string piece(1000, 'a');
  // A way from every byte would be minutes of work.
  for (int i = 0; i < 1000; ++i) matcher.push(piece, true, text);
  EXPECT_EQ(matcher.push("b", true, text), 0);
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace heddle::request
