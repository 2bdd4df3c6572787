// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/testing/mask_fixture.h"

namespace heddle::grammar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::matches;

Automaton must_compile(GrammarKind kind, std::string text) {
  Result<Automaton> automaton = compile({.kind = kind, .text = std::move(text)});
  EXPECT_TRUE(automaton.ok()) << automaton.status().to_string();
  return std::move(automaton).value();
}

std::string refusal(GrammarKind kind, std::string text) {
  const Result<Automaton> automaton = compile({.kind = kind, .text = std::move(text)});
  EXPECT_FALSE(automaton.ok());
  return automaton.ok() ? "" : automaton.status().message();
}

TEST(GrammarTest, JsonObjectsAreAnyObjects) {
  const Automaton json = must_compile(GrammarKind::kJsonObject, "");
  for (const char* const text :
       {"{}", R"({"a": [1, -2.5e3, true, null, {"b": "\u00e9\ud83d\ude00\"x"}]})",
        "{\n  \"a\": 1,\n  \"b\": []\n}"}) {
    EXPECT_TRUE(matches(json, text)) << text;
  }
  for (const char* const text :
       {"", "[]", "{", R"({"a":})", R"({"a":01})", R"({"a":1,})", R"({a:1})", R"({"a":"\x"})",
        R"({"a":"\ud800"})", "{\"a\":\"\n\"}", "{\"a\":\"\xFF\"}", "{}x"}) {
    EXPECT_FALSE(matches(json, text)) << text;
  }
}

TEST(GrammarTest, RegexesMatchWholeTexts) {
  const Automaton date = must_compile(GrammarKind::kRegex, R"(\d{4}-(0[1-9]|1[0-2])-\d\d)");
  EXPECT_TRUE(matches(date, "2024-12-31"));
  EXPECT_FALSE(matches(date, "2024-13-31"));
  EXPECT_FALSE(matches(date, "2024-12-31 "));
  const Automaton anchored = must_compile(GrammarKind::kRegex, "^(?:a|b)+?[^a-c\\s]{2,3}$");
  EXPECT_TRUE(matches(anchored, "abaé€"));
  EXPECT_FALSE(matches(anchored, "abac "));
  const Automaton negated = must_compile(GrammarKind::kRegex, "[^x]");
  EXPECT_TRUE(matches(negated, "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(matches(negated, "\xED\xA0\x80"));  // a surrogate has no bytes in UTF-8
}

TEST(GrammarTest, RefusesPatternsBeyondFiniteAutomataByName) {
  const auto kind = GrammarKind::kRegex;
  EXPECT_THAT(refusal(kind, "(?=a)b"), HasSubstr("a look-ahead (?=...)"));
  EXPECT_THAT(refusal(kind, "(?!a)b"), HasSubstr("a negative look-ahead (?!...)"));
  EXPECT_THAT(refusal(kind, "(?i)b"),
              HasSubstr("a group of flags (?i) at byte 0, which is not supported"));
  EXPECT_THAT(refusal(kind, "(?s-m:b)"),
              HasSubstr("flags (?s-m) at byte 0, which is not supported"));
  EXPECT_THAT(refusal(kind, "(?>a)b"), HasSubstr("an atomic group (?>...)"));
  EXPECT_THAT(refusal(kind, "(?P<x>a)(?P=x)"), HasSubstr("a back reference (?P=...)"));
  EXPECT_THAT(refusal(kind, "(?<x>a)\\k<x>"), HasSubstr("a back reference \\k"));
  EXPECT_THAT(refusal(kind, "(?<!a)b"),
              HasSubstr("a look-behind at byte 0, which is not supported"));
  EXPECT_THAT(refusal(kind, "(a)\\1"),
              HasSubstr("a back reference \\1 at byte 3, which is not supported"));
  EXPECT_THAT(refusal(kind, "\\q"), HasSubstr("an escape \\q at byte 0, which is not supported"));
  EXPECT_THAT(refusal(kind, "\\p{Nonsense}"),
              HasSubstr("an unknown class of characters \\p{Nonsense}"));
  EXPECT_THAT(refusal(kind, "a\\bword"),
              HasSubstr("a word boundary at byte 1, which is not supported"));
  EXPECT_THAT(refusal(kind, "a**"), HasSubstr("a repeat of nothing at byte 2"));
  EXPECT_THAT(refusal(kind, "(a"), HasSubstr("a group without ) at byte 0"));
  EXPECT_THAT(refusal(kind, "a)"), HasSubstr("an unmatched )"));
  EXPECT_THAT(refusal(kind, "[a"), HasSubstr("a class without ]"));
  EXPECT_THAT(refusal(kind, "a^b"), HasSubstr("^ or $ inside"));
  EXPECT_THAT(refusal(kind, "[]"), HasSubstr("matches no text at all"));
}

TEST(GrammarTest, PatternsKnowUnicodesClassesAndOtherLanguagesGroups) {
  const auto kind = GrammarKind::kRegex;
  const Automaton letters = must_compile(kind, "\\p{Lu}\\pL*");
  EXPECT_TRUE(matches(letters, "Émile"));
  EXPECT_TRUE(matches(letters, "Ωμέγα"));
  EXPECT_FALSE(matches(letters, "émile"));
  EXPECT_FALSE(matches(letters, "E1"));
  const Automaton mixed = must_compile(kind, "[\\p{L}\\p{N} _-]{1,64}");
  EXPECT_TRUE(matches(mixed, "naïve 数字 9"));
  EXPECT_FALSE(matches(mixed, "a.b"));
  const Automaton script = must_compile(kind, "\\p{Script=Greek}+\\P{Letter}");
  EXPECT_TRUE(matches(script, "αβγ!"));
  EXPECT_FALSE(matches(script, "abc!"));
  const Automaton named = must_compile(kind, "(?P<y>a)(?<z>b)\\Z");
  EXPECT_TRUE(matches(named, "ab"));
}

TEST(GrammarTest, CountsOfOneCharacterCostNoStates) {
  const Automaton text = must_compile(GrammarKind::kRegex, "^[^x]{3,500000}$");
  EXPECT_LT(text.num_states(), 100u);
  EXPECT_FALSE(matches(text, "é€"));
  EXPECT_TRUE(matches(text, "é€\n"));
  EXPECT_TRUE(matches(text, std::string(500000, 'a')));
  EXPECT_FALSE(matches(text, std::string(500001, 'a')));
  EXPECT_FALSE(matches(text, "abxd"));
}

TEST(GrammarTest, HostileRegexesAreRefusedWithinBounds) {
  const auto kind = GrammarKind::kRegex;
  EXPECT_THAT(refusal(kind, "(a|b)*a(a|b){40}"), HasSubstr("states once it is deterministic"));
  EXPECT_THAT(refusal(kind, "((a{1000}){1000}){1000}"), HasSubstr("more than 524288 states"));
  EXPECT_THAT(refusal(kind, "(ab){1000000}"), HasSubstr("repeats a part of it 1000000 times"));
  EXPECT_THAT(refusal(kind, "(ab){99999999999999999999}"), HasSubstr("repeats a part of it"));
  EXPECT_THAT(refusal(kind, "(ab){x}"), HasSubstr("a repeat without a number"));
  EXPECT_THAT(refusal(kind, std::string(100, '(') + std::string(100, ')')),
              HasSubstr("more than 64 groups inside each other"));
  EXPECT_THAT(refusal(kind, std::string(20000, 'a')), HasSubstr("20000 bytes; at most 16384"));
}

TEST(GrammarTest, EbnfRulesCallEachOther) {
  const Automaton sum = must_compile(GrammarKind::kEbnf, R"x(
      # sums in brackets
      root ::= term (" + " term){0,2}
      term ::= [0-9]+ | "(" root ")" | "\u00e9"?  "!"
  )x");
  for (const char* const text : {"1", "12 + 3", "(1 + (2)) + 3", "é!", "! + !"}) {
    EXPECT_TRUE(matches(sum, text)) << text;
  }
  for (const char* const text : {"", "1+2", "(1", "1 + 2 + 3 + 4", "é"}) {
    EXPECT_FALSE(matches(sum, text)) << text;
  }
  const Automaton repeats = must_compile(GrammarKind::kEbnf, "root ::= \"a\"{2,} [b-d]{0,1} .?");
  EXPECT_TRUE(matches(repeats, "aaaac\xE2\x82\xAC"));
  EXPECT_FALSE(matches(repeats, "ac"));
}

TEST(GrammarTest, EbnfErrorsNameTheLine) {
  const auto kind = GrammarKind::kEbnf;
  EXPECT_THAT(refusal(kind, "a ::= \"x\""), HasSubstr("there is no rule \"root\""));
  EXPECT_THAT(refusal(kind, "root ::= b"), HasSubstr("the rule \"b\" is used but not defined"));
  EXPECT_THAT(refusal(kind, "root ::= \"a\"\nroot ::= \"b\""),
              AllOf(HasSubstr("line 2"), HasSubstr("defined twice")));
  EXPECT_THAT(refusal(kind, "root ::= \"a"), HasSubstr("line 1: a literal without a closing"));
  EXPECT_THAT(refusal(kind, "root ::= root \"a\" | \"b\""),
              HasSubstr("the rule \"root\": refers to itself before anything was read"));
  EXPECT_THAT(refusal(kind, "root ::= a root \"b\" | \"c\"\na ::= \"x\"?"),
              HasSubstr("refers to itself before anything was read"));
  EXPECT_THAT(refusal(kind, "root ::= \"a\" root"), HasSubstr("matches no text at all"));
  EXPECT_THAT(refusal(kind, "root ::= ((\"a\"{9999}){9999}){9999}"), HasSubstr("524288 states"));
}

TEST(GrammarTest, TagsInTextKeepToTheirSchemas) {
  const Automaton tags = must_compile(GrammarKind::kStructuralTag, R"({"structures": [
      {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"},
      {"begin": "<g>", "schema": {"type": "boolean"}, "end": "</g>"}], "triggers": ["<f", "<g"]})");
  EXPECT_TRUE(matches(tags, "any < text"));
  EXPECT_TRUE(matches(tags, "a<f>12</f> b <<g>true</g>"));
  EXPECT_FALSE(matches(tags, "a<f>x</f>"));
  EXPECT_FALSE(matches(tags, "a<f>12</g>"));
  EXPECT_FALSE(matches(tags, "a<fx"));
}

TEST(GrammarTest, FormatsOfTagsNest) {
  const Automaton one = must_compile(GrammarKind::kStructuralTag, R"({"format": {
      "type": "sequence", "elements": [
        {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"},
        {"type": "triggered_tags", "triggers": ["<c>"], "at_least_one": true,
         "stop_after_first": true, "tags": [{"begin": "<c>", "end": "</c>", "content":
            {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]+"},
             {"type": "const_string", "value": "none"},
             {"type": "grammar", "grammar": "root ::= \"r\"+"},
             {"type": "json_schema", "json_schema": {"const": []}}]}}]}]}})");
  EXPECT_TRUE(matches(one, "<think>x </ thin</think><c>12</c>"));
  EXPECT_TRUE(matches(one, "<think></think><c>rr</c>"));
  EXPECT_TRUE(matches(one, "<think></think><c>[]</c>"));
  EXPECT_FALSE(matches(one, "<think></think>none"));
  EXPECT_FALSE(matches(one, "<think></think>ok <c>12</c>"));
  EXPECT_FALSE(matches(one, "<think></think><c>12</c>x"));
  const Automaton separated = must_compile(GrammarKind::kStructuralTag, R"({"format":
    {"type": "tags_with_separator", "separator": ", ", "at_least_one": true, "tags": [
      {"begin": "a", "content": {"type": "regex", "pattern": "[0-9]"}, "end": ";"},
      {"begin": "b", "content": {"type": "any_text"}, "end": "."}]}})");
  EXPECT_TRUE(matches(separated, "a1;"));
  EXPECT_TRUE(matches(separated, "bx, a., a2;, b."));
  EXPECT_FALSE(matches(separated, ""));
  EXPECT_FALSE(matches(separated, "a1; a2;"));
  EXPECT_FALSE(matches(separated, "a1;, "));
  const auto kind = GrammarKind::kStructuralTag;
  EXPECT_THAT(refusal(kind, R"({"format": {"type": "tag", "begin": "a", "end": "b"}})"),
              HasSubstr("at \"/format\": \"content\" must be an object"));
  EXPECT_THAT(refusal(kind, R"({"format": {"type": "song"}})"), HasSubstr("\"song\" is not supp"));
  EXPECT_THAT(refusal(kind, R"({"structures": [{"begin": "x", "schema": true, "end": ""}],
                                "triggers": ["y"]})"),
              HasSubstr("no trigger begins \"x\""));
}

TEST(GrammarTest, ReasoningMayComeFirst) {
  const Automaton automaton =
      std::move(
          compile({.kind = GrammarKind::kRegex, .text = "yes|no", .free_text_end = "</think>"}))
          .value();
  EXPECT_TRUE(matches(automaton, "Hm </thin </think>\n\nyes"));
  EXPECT_TRUE(matches(automaton, "</think>no"));
  EXPECT_FALSE(matches(automaton, "yes"));
  EXPECT_FALSE(matches(automaton, "</think>maybe"));
  const Automaton optional = std::move(compile({.kind = GrammarKind::kRegex,
                                                .text = "yes|no",
                                                .free_text_end = "</think>",
                                                .free_text_begin = "<think>"}))
                                 .value();
  EXPECT_TRUE(matches(optional, "yes"));
  EXPECT_TRUE(matches(optional, "<think>\nyes?</think>\nno"));
  EXPECT_FALSE(matches(optional, "\nyes"));
  EXPECT_FALSE(matches(optional, "hm</think>yes"));
  EXPECT_FALSE(matches(optional, "<think>yes"));
}

TEST(GrammarTest, ReasoningMayStandBetweenSpecialTokens) {
  std::vector<std::string> bytes(1);
  for (int byte = 1; byte < 128; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* const mark : {"<|channel>", "<channel|>"}) {
    bytes.push_back(special_token_bytes(mark));
  }
  const auto masks = std::make_shared<VocabularyMasks>(std::move(bytes), std::vector<TokenId>{0});
  const std::string open = special_token_bytes("<|channel>");
  const std::string close = special_token_bytes("<channel|>");
  for (const std::string_view label : {"", "thought"}) {
    const auto automaton = compile({.kind = GrammarKind::kRegex,
                                    .text = "yes|no",
                                    .free_text_end = "<channel|>",
                                    .free_text_begin = "<|channel>" + std::string(label)},
                                   masks.get());
    ASSERT_TRUE(automaton.ok());
    EXPECT_TRUE(matches(*automaton, "yes"));
    EXPECT_TRUE(matches(*automaton, open + "thought\nHm <channel|>" + close + "yes"));
    EXPECT_FALSE(matches(*automaton, "<|channel>thought\nHm" + close + "yes"));
    EXPECT_FALSE(matches(*automaton, open + "thought\nHm<channel|>yes"));
    EXPECT_EQ(matches(*automaton, open + "Hm" + close + "yes"), label.empty());
  }
}

}  // namespace
}  // namespace heddle::grammar
