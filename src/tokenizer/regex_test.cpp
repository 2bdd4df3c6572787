// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/pre_tokenizer.h"

namespace heddle::tokenizer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().to_string();
  RegexScratch scratch;
  std::vector<std::string> found;
  Span match;
  for (size_t at = 0; regex->find(text, at, scratch, match); at = match.end) {
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  EXPECT_TRUE(scratch.status.ok()) << scratch.status.to_string();
  return found;
}

std::string respell(std::string_view pattern) {
  Result<std::string> respelled = respell_for_pcre2(pattern);
  return respelled.ok() ? *respelled : respelled.status().to_string();
}

TEST(RegexDialect, LeavesPlainPatternsAlone) {
  for (const char* pattern : {"a|b+?", R"(\p{L}+[^\r\n\p{N}]?)", R"([\[\]\\]{2,3}x)", "(?i:'s|'t)",
                              R"(\x{85}[[:alpha:]_])", "a{b}"}) {
    EXPECT_EQ(respell(pattern), pattern);
  }
}

TEST(RegexDialect, WhiteSpaceIsUnicodesSet) {
  EXPECT_THAT(matches(R"(\s+)", "a \t\u00A0\u0085\u3000b"), ElementsAre(" \t\u00A0\u0085\u3000"));
  EXPECT_THAT(matches(R"(\S+)", "\u180E"), ElementsAre("\u180E"));  // a format character since 6.3
  EXPECT_THAT(matches(R"([^\s]+)", "\u180E\u2028"), ElementsAre("\u180E"));
}

TEST(RegexDialect, WordCharactersIncludeMarksAndConnectors) {
  EXPECT_THAT(matches(R"(\w+)", "e\u0301_1\u203F!"), ElementsAre("e\u0301_1\u203F"));
  EXPECT_THAT(matches(R"(\W+)", "a!?b"), ElementsAre("!?"));
  EXPECT_THAT(matches(R"(\h+)", "xbeefz"), ElementsAre("beef"));
}

TEST(RegexDialect, SetsInsideSetsAreUnions) {
  EXPECT_EQ(respell("[^(a|[.,!])]+"), "[^(a|.,!)]+");
  EXPECT_THAT(matches(R"( ?[^(\s|[.,!?])]+)", "Hi there, you"),
              ElementsAre("Hi", " there", " you"));
  EXPECT_EQ(respell("[]a]"), R"([\]a])");
}

TEST(RegexDialect, ClassesAreThoseInsideOfSetsThatABracketEnds) {
  EXPECT_EQ(respell("[_[:alpha:][:digit:]]"), "[_[:alpha:][:digit:]]");
  EXPECT_EQ(respell("[^[:^space:]]"), "[^[:^space:]]");
  EXPECT_EQ(respell("[a[:b]c]"), "[a:bc]");
  EXPECT_EQ(respell("[[:a]b:]"), R"([\:ab:])");
  EXPECT_THAT(matches("[:a:]+", "xa:bal"), ElementsAre("a:", "a"));
  EXPECT_THAT(matches("[.!.]+", "a!.b"), ElementsAre("!."));
  EXPECT_THAT(matches("[=a=]+", "b=a"), ElementsAre("=a"));
  EXPECT_THAT(matches("[:a:][b&&[b-c]]", "ab:c:b"), ElementsAre("ab", ":b"));
}

TEST(RegexDialect, TakesLinearTime) {
  for (const char* const unit : {"[:", "[:a:]", "[[:", "[", R"([\p{[}])", R"([\x{)", "{", "[a:]"}) {
    std::string pattern;
    while (pattern.size() < 256 << 10) pattern += unit;
    EXPECT_TRUE(respell_for_pcre2(pattern).ok()) << unit;
    EXPECT_TRUE(respell_for_pcre2(pattern + "]").ok()) << unit;
  }
}

TEST(RegexDialect, AnIntervalWithPlusRepeats) {
  EXPECT_EQ(respell(R"(\p{N}{1,3}+x)"), R"((?:\p{N}{1,3})+x)");
  EXPECT_EQ(respell("(ab){2}+"), "(?:(ab){2})+");
  EXPECT_EQ(respell("[ab]{,2}"), "[ab]{0,2}");
  EXPECT_THAT(matches(R"([0-9]{1,3}+)", "1234567"), ElementsAre("1234567"));
}

TEST(RegexDialect, IntersectionsOfSetsAreLookaheadsOrOneSet) {
  EXPECT_EQ(respell("[a-z&&[^aeiou]]+"), "(?:(?=[^aeiou])[a-z])+");
  EXPECT_EQ(respell("[[a-z]&&c-x&&[^m]]{2}"), "(?:(?=[c-x])(?=[^m])[a-z]){2}");
  EXPECT_THAT(matches("[a-z&&[^aeiou]]+", "strange"), ElementsAre("str", "ng"));
  EXPECT_THAT(matches("[a-z&&[b-y]&&[^m]]+", "abcmxyz"), ElementsAre("bc", "xy"));
  // Letters without marks, as one set: all other categories and what is excluded.
  const std::string letters = respell(R"([\p{L}\p{M}&&[^\p{Han}e]])");
  EXPECT_THAT(letters, AllOf(StartsWith(R"([^\p{Nd}\p{Nl})"), EndsWith(R"(\p{Cn}\p{sc:Han}e])")));
  EXPECT_THAT(matches(R"([\p{L}\p{M}&&[^\p{Han}e]]+)", "ab1中文é\u0301e\u3042"),
              ElementsAre("ab", "é\u0301", "\u3042"));
  EXPECT_THAT(matches(R"([\p{L}&&\p{Greek}]+)", "aαβb"), ElementsAre("αβ"));
}

// PCRE2 would count the ideographic full stop among the characters of Han, because it is used
// there.
TEST(RegexDialect, AScriptHasItsOwnCharactersAlone) {
  EXPECT_THAT(matches(R"([\p{Han}]+)", "世界。、〇々"), ElementsAre("世界", "〇々"));
  EXPECT_THAT(matches(R"(\p{Hiragana}+)", "かー・"), ElementsAre("か"));
  EXPECT_THAT(matches(R"(\p{^Han}+)", "中。a文"), ElementsAre("。a"));
  EXPECT_THAT(matches(R"(\P{Han}+)", "中。a文"), ElementsAre("。a"));
  EXPECT_EQ(respell(R"(\p{Lu}\p{Any}\p{Alphabetic}\p{^N})"),
            R"(\p{Lu}\p{Any}\p{Alphabetic}\p{^N})");
}

TEST(RegexDialect, RefusesSyntaxWithoutACounterpart) {
  EXPECT_THAT(respell("[^a-z&&[^aeiou]]"),
              HasSubstr("a negated intersection of sets (&&) at byte"));
  EXPECT_THAT(respell("[a[b&&c]]"),
              HasSubstr("an intersection inside a set, or without its end at byte 4"));
  EXPECT_THAT(respell("[a&&[b&&c]]"), HasSubstr("an intersection inside a set"));
  EXPECT_THAT(respell("[a&&^b]"), HasSubstr("an intersection with a '^' of its own"));
  EXPECT_THAT(respell("[a&&b"), HasSubstr("without its end"));
  for (const char* const pattern : {"[a&&&&b]", R"([\p{L}&&])", "[&&a]", "[&&]", "x[a&&b&&]y"}) {
    EXPECT_THAT(respell(pattern), HasSubstr("an intersection with nothing at byte")) << pattern;
  }
  for (const char* const pattern : {"[a&&[[]]]", "[[]]", "x[^[]]"}) {
    EXPECT_THAT(respell(pattern), HasSubstr("an empty set at byte")) << pattern;
  }
  EXPECT_THAT(respell("[a[^b]]"), HasSubstr("negated set inside a set"));
  EXPECT_THAT(respell(R"([\Wa])"), HasSubstr(R"(\W inside a set)"));
}

TEST(Regex, DollarEndsLines) { EXPECT_THAT(matches("b$", "ab\ncb"), ElementsAre("b", "b")); }

TEST(Regex, StepsOverEmptyMatches) {
  EXPECT_THAT(matches("a*", "éaaé"), ElementsAre("aa"));
  EXPECT_THAT(matches("(?=b)", "abc"), ElementsAre());
}

TEST(Regex, TakesALiteralAsItIs) {
  const Result<Regex> regex = Regex::compile_literal("a.*[");
  ASSERT_TRUE(regex.ok()) << regex.status().to_string();
  RegexScratch scratch;
  Span match;
  EXPECT_TRUE(regex->find("xa.*[", 0, scratch, match));
  EXPECT_EQ(match.begin, 1u);
  EXPECT_FALSE(regex->find("abc[", 0, scratch, match));
  EXPECT_FALSE(Regex::compile_literal("").ok());
}

TEST(Regex, SaysWhereAPatternIsWrong) {
  for (const char* pattern : {"(", "[a", "a{2}{", "*", "\\", R"(\p{Nonsense})", "(?<", "[a-"}) {
    const Result<Regex> regex = Regex::compile(pattern);
    if (regex.ok()) continue;  // some are odd, but patterns
    EXPECT_THAT(regex.status().message(), HasSubstr("at byte"));
    EXPECT_THAT(regex.status().message(), HasSubstr(pattern));
  }
  EXPECT_FALSE(Regex::compile("(").ok());
  EXPECT_FALSE(Regex::compile("[a").ok());
  EXPECT_FALSE(Regex::compile(R"(\p{Nonsense})").ok());
  EXPECT_FALSE(Regex::compile("a\xFF").ok());
}

TEST(Regex, SplitsAMillionCharactersOfOneKind) {
  for (const std::string unit : {" ", "a", "A", "!", "1", "\n", "中", "あ", "\u0301"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    for (const std::string_view pattern : {kQwen2Pattern, kKimiPattern}) {
      size_t total = 0;
      for (const std::string& match : matches(pattern, text)) total += match.size();
      EXPECT_EQ(total, text.size()) << unit;
    }
  }
}

}  // namespace
}  // namespace heddle::tokenizer
