// SPDX-License-Identifier: Apache-2.0
#include "grammar/value_spelling.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"

namespace heddle::grammar {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Result<Automaton> compile_arguments(const char* schema, const char* type = "python_arguments") {
  const Json format = {{"type", type}, {"json_schema", Json::parse(schema)}};
  return compile({.kind = GrammarKind::kStructuralTag, .text = Json{{"format", format}}.dump()});
}

void expect_arguments(const char* schema, const std::vector<const char*>& valid,
                      const std::vector<const char*>& invalid,
                      const char* type = "python_arguments") {
  const Result<Automaton> automaton = compile_arguments(schema, type);
  ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
  for (const char* const text : valid) {
    EXPECT_TRUE(testing::matches(*automaton, text)) << schema << text;
  }
  for (const char* const text : invalid) {
    EXPECT_FALSE(testing::matches(*automaton, text)) << schema << text;
  }
}

std::string refusal_of_arguments(const char* schema) {
  const Result<Automaton> automaton = compile_arguments(schema);
  EXPECT_FALSE(automaton.ok());
  return automaton.ok() ? "" : automaton.status().message();
}

TEST(ValueSpellingTest, ValuesAreJsonOrPythonsLiterals) {
  const Json value = Json::parse(R"({"a": [null, true, "x\n\"", 1.5], "é": {"b": false}})");
  EXPECT_EQ(spell_value(value, ValueForm::kJson),
            R"({"a":[null,true,"x\n\"",1.5],"é":{"b":false}})");
  EXPECT_EQ(spell_value(value, ValueForm::kPythonArguments),
            R"({"a":[None,True,"x\n\"",1.5],"é":{"b":False}})");
  EXPECT_EQ(spell_value(value, ValueForm::kGemmaArguments,
                        {.mark = std::string(kGemmaTextMark), .form = TextForm::kPlain}),
            "{a:[null,true,<|\"|>x\n\"<|\"|>,1.5],é:{b:false}}");
  EXPECT_FALSE(can_spell(Json::parse(R"([{"a b": 1}])"), ValueForm::kGemmaArguments));
  EXPECT_FALSE(can_spell({"a<|\"|>b"}, ValueForm::kGemmaArguments));
  EXPECT_TRUE(can_spell(Json::parse(R"([{"a b": 1}, "a<|\"|>b"])"), ValueForm::kPythonArguments));
}

TEST(ValueSpellingTest, NamesOfArgumentsAreThoseOfPython) {
  for (const char* const name : {"a", "_", "aB_9"}) EXPECT_TRUE(is_argument_name(name)) << name;
  for (const char* const name : {"", "9", "a-b", "a b", "é"}) {
    EXPECT_FALSE(is_argument_name(name)) << name;
  }
}

TEST(ValueSpellingTest, ArgumentsAreNamedAndHaveLiteralValues) {
  expect_arguments(
      R"({"type": "object", "required": ["city"], "properties": {
          "city": {"type": "string", "maxLength": 5}, "days": {"type": ["integer", "null"]},
          "ok": {"type": "boolean"}, "l": {"items": {"enum": [null, true, "x", {"a": false}]}},
          "d": {"type": "object"}}})",
      {R"(city="Paris")", R"(city="a", days=3, ok=True)", R"(city="a",days=None)",
       R"(city="a", l=[None, True, "x", {"a":False}])",
       R"(city="a", d={"k": {"z": None}, "": [True, 1e5]})", R"(city="\"\\)é")"},
      {"", "days=3", "city='a'", R"(city="Paris!")", R"(city="a", ok=true)", R"(city = "a")",
       R"({"city": "a"})", R"(city="a", z=1)", R"(city="a",)", R"(city="a", l=[null])",
       R"(city="a", d={k: 1})", R"(city="a" )", R"(days=3, city="a")", R"("a")"});
  expect_arguments(R"({"type": "object"})",
                   {"", "a=1", R"(_b2=[{"a": False}], a=None)", R"(d={"é": "x"})"},
                   {"1=2", "a-b=1", "a", R"("a"=1)", "a=null", "a=1 b=2", "a=1, ", "a=1,\t b=2"});
  expect_arguments(R"({"properties": {"a": {"type": "integer"}},
                       "additionalProperties": {"type": "string"}})",
                   {"", R"(a=1, b="x")", R"(aa="x", b="")"}, {R"(a="x")", "b=1"});
}

TEST(ValueSpellingTest, AlternativesAndReferencesAreArgumentsAtTheRootAlone) {
  expect_arguments(R"({"type": "object", "properties": {"v": {"type": "integer"},
                       "next": {"$ref": "#"}}})",
                   {"v=1", R"(v=1, next={"v": 2, "next": {}})"}, {"next=v=1", "next=(v=1)"});
  expect_arguments(R"({"type": "object", "anyOf": [{"properties": {"a": {"const": true}},
                       "required": ["a"]}, {"$ref": "#/$defs/b"}],
                       "$defs": {"b": {"properties": {"b": {"const": null}}, "required": ["b"]}}})",
                   {"a=True", "b=None"}, {"", "a=1", "a=True, b=None"});
  expect_arguments(R"({"type": ["object", "string"], "maxLength": 2})", {"", "a=1"}, {R"("a")"});
}

TEST(ValueSpellingTest, GemmasArgumentsHaveTextsBetweenMarks) {
  constexpr auto kGemma = "gemma_arguments";
  expect_arguments(
      R"({"type": "object", "required": ["t"], "properties": {
      "t": {"type": "string"}, "n": {"type": ["integer", "null"], "maximum": 9},
      "l": {"type": "string", "minLength": 1, "maxLength": 3},
      "p": {"type": "string", "pattern": "^a.*b$"},
      "q": {"type": "string", "pattern": "^[ab\"\\\\]*$", "maxLength": 4},
      "e": {"enum": ["x", {"a": ["y"]}, "z<|\"|>"]},
      "o": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}}}})",
      {"{t:<|\"|><|\"|>}", "{t:<|\"|>a\"b',:}]\n\\ <|x|> é<|\"|>}", "{t:<|\"|>x<|\"|>,n:5}",
       "{t:<|\"|>x<|\"|>,n:null}", "{t:<|\"|>x<|\"|>,l:<|\"|>\"\\é<|\"|>}",
       "{t:<|\"|>x<|\"|>,p:<|\"|>a<b<|\"|>}", "{t:<|\"|>x<|\"|>,q:<|\"|>a\\\"b<|\"|>}",
       "{t:<|\"|>x<|\"|>,e:<|\"|>x<|\"|>}", "{t:<|\"|>x<|\"|>,e:{a:[<|\"|>y<|\"|>]}}",
       "{t:<|\"|>x<|\"|>,o:{k:<|\"|>ab<|\"|>,_2:<|\"|><|\"|>}}"},
      {"{}", "{t:x}", "{t:\"x\"}", "{t:<|\"|>a<|\"|>b<|\"|>}", "{\"t\":<|\"|>x<|\"|>}",
       "{t: <|\"|>x<|\"|>}", "{t:<|\"|>x<|\"|>, n:5}", "{t:<|\"|>x<|\"|>,n:10}",
       "{t:<|\"|>x<|\"|>,l:<|\"|><|\"|>}", "{t:<|\"|>x<|\"|>,l:<|\"|>abcd<|\"|>}",
       "{t:<|\"|>x<|\"|>,l:<|\"|>a<b<|\"|>}", "{t:<|\"|>x<|\"|>,p:<|\"|>a<|\"|>b<|\"|>}",
       "{t:<|\"|>x<|\"|>,p:<|\"|>b<|\"|>}", "{t:<|\"|>x<|\"|>,q:<|\"|>abab\"<|\"|>}",
       "{t:<|\"|>x<|\"|>,e:<|\"|>z<|\"|><|\"|>}", "{t:<|\"|>x<|\"|>,o:{k v:<|\"|>ab<|\"|>}}",
       "{t:<|\"|>x<|\"|>,o:{k:<|\"|>abc<|\"|>}}"},
      kGemma);
  expect_arguments(
      R"({"type": "object", "properties": {"a-b": {"const": 1}, "next": {"$ref": "#"}}})",
      {"{}", "{a-b:1}", "{a-b:1,next:{next:{}}}"}, {"{next:1}"}, kGemma);
  const auto refused =
      compile_arguments(R"({"type": "object", "properties": {"a b": {}}})", kGemma);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("cannot stand without quotes"));
}

TEST(ValueSpellingTest, ArgumentsThatPythonCannotNameAreRefused) {
  EXPECT_THAT(
      refusal_of_arguments(R"({"type": "object", "properties": {"a-b": {}}})"),
      HasSubstr("the property \"a-b\" cannot be named in a call of the form f(name=value)"));
  EXPECT_THAT(refusal_of_arguments(R"({"type": "object", "const": {"a": 1}})"),
              HasSubstr("cannot be chosen as a whole"));
  EXPECT_THAT(refusal_of_arguments(R"({"type": "string"})"), HasSubstr("matches no text at all"));
  EXPECT_THAT(refusal_of_arguments(R"({"type": "object", "not": {"type": "null"}})"),
              HasSubstr("not"));
  expect_arguments(R"({"properties": {"d": {"properties": {"a-b": {"const": 1}}}}})",
                   {R"(d={"a-b": 1})"}, {});
}

}  // namespace
}  // namespace heddle::grammar
