// SPDX-License-Identifier: Apache-2.0
#include "parsers/call_form.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"

namespace heddle::parsers {
namespace {

bool is_read_back(const std::string& name, ToolCallFormat format) {
  const std::string call =
      format == ToolCallFormat::kPythonic ? fmt::format("[{}()]", name)
      : format == ToolCallFormat::kLfm2
          ? fmt::format("<|tool_call_start|>[{}()]<|tool_call_end|>", name)
      : format == ToolCallFormat::kGemma4
          ? fmt::format("<|tool_call>call:{}{{}}<tool_call|>", name)
          : fmt::format("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{{}}",
                        name);
  const auto tools = std::make_shared<nlohmann::ordered_json>(
      nlohmann::ordered_json{{{"function", {{"name", name}}}}});
  const auto parser = make_answer_parser({.tool_calls = format, .tools = tools, .id_seed = "x"});
  AnswerDeltas deltas;
  parser->push(call, deltas);
  parser->finish(TextEnd::kStopped, deltas);
  AssembledAnswer answer;
  for (AnswerDelta& delta : deltas) answer.add(std::move(delta));
  return answer.calls.size() == 1 && answer.calls[0].name == name &&
         answer.calls[0].arguments == "{}" && answer.content.empty();
}

TEST(CallFormTest, AToolCanBeNamedWhoseNameTheParserReadsBack) {
  for (const ToolCallFormat format : {ToolCallFormat::kPythonic, ToolCallFormat::kLfm2,
                                      ToolCallFormat::kGemma4, ToolCallFormat::kHarmony}) {
    SCOPED_TRACE(to_string(format));
    for (const std::string& name :
         {std::string("f"), std::string("get_weather"), std::string("a.b-c"), std::string("9"),
          std::string("functions.f"), std::string("assistant"), std::string("get weather"),
          std::string("a<b"), std::string("a/b"), std::string("é"), std::string("x("),
          std::string(), std::string("a\nb"), std::string(300, 'a'), std::string(1100, 'a')}) {
      EXPECT_EQ(can_name(name, format), is_read_back(name, format)) << name;
    }
    EXPECT_TRUE(can_name("get_weather", format));
    EXPECT_EQ(can_name("get weather", format), format == ToolCallFormat::kGemma4);
  }
  EXPECT_TRUE(can_name("get weather", ToolCallFormat::kQwen)) << "in quotes";
}

using Json = nlohmann::ordered_json;

constexpr ToolCallFormat kTaggedFormats[] = {ToolCallFormat::kQwen3Coder, ToolCallFormat::kGlm,
                                             ToolCallFormat::kDeepseekV32,
                                             ToolCallFormat::kMinimaxM2, ToolCallFormat::kSeedOss};

std::string form_of(const Json& parameters, ToolCallFormat format, bool is_strict) {
  const auto form = call_form({{.name = "f", .parameters = parameters, .is_strict = is_strict}},
                              {.format = format});
  return form ? form->dump() : "";
}

TEST(CallFormTest, SchemasAtTheRootMergeIntoOneListOfProperties) {
  const Json plain = Json::parse(R"({"type": "object",
      "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a", "b"]})");
  const Json cases = Json::parse(R"([
      {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "required": ["a", "b"],
          "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}}},
      {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                 {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}, true]},
      {"properties": {"a": {"type": "integer"}}, "required": ["b"],
       "allOf": [{"$ref": "#/definitions/B"}],
       "definitions": {"B": {"properties": {"b": {"type": "boolean"}}, "required": ["a"]}}},
      {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a", "b"]},
                 {"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}]},
      {"$ref": "#/$defs/A", "x-note": "anyOf", "$defs": {"A": {"$ref": "#/$defs/B"},
          "B": {"additionalProperties": false, "required": ["a", "b"],
                "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}}}])");
  for (const ToolCallFormat format : kTaggedFormats) {
    for (const bool is_strict : {true, false}) {
      for (const Json& parameters : cases) {
        EXPECT_EQ(keyword_not_enforced(parameters, format), std::nullopt) << parameters;
        EXPECT_EQ(form_of(parameters, format, is_strict), form_of(plain, format, is_strict))
            << parameters;
      }
    }
  }
}

TEST(CallFormTest, KeywordsOfTheWholeObjectAreNamedAndLeftOut) {
  const Json plain = Json::parse(R"({"properties": {"a": {"type": "integer"}}})");
  const std::pair<const char*, const char*> cases[] = {
      {"`anyOf`", R"({"anyOf": [{"required": ["a"]}]})"},
      {"`const`", R"({"const": {"a": 1}})"},
      {"`enum`", R"({"enum": [{"a": 1}]})"},
      {"`minProperties`", R"({"minProperties": 1})"},
      {"`patternProperties`", R"({"patternProperties": {"^x": {"type": "null"}}})"},
      {"`if`", R"({"if": {"required": ["a"]}, "then": {"required": ["b"]}})"},
      {"`unevaluatedProperties`", R"({"unevaluatedProperties": {"type": "null"}})"},
      {"`dependentRequired`", R"({"dependentRequired": {"a": ["b"]}})"},
      {"`propertyNames`", R"({"propertyNames": {"maxLength": 3}})"},
      {"`required` names `z`", R"({"required": ["z"]})"},
      {"`$ref`", R"({"$ref": "#/$defs/none"})"},
      {"`$ref`", R"({"$ref": "#"})"},
      {"`allOf`", R"({"allOf": [{"properties": {"a": {"type": "string"}}}]})"},
      {"`type`", R"({"allOf": [{"type": "string"}]})"},
      {"`not`", R"({"allOf": [{"not": {}}]})"},
      {"`additionalProperties`", R"({"allOf": [{"additionalProperties": false}]})"}};
  for (const auto& [problem, keywords] : cases) {
    Json parameters = plain;
    parameters.update(Json::parse(keywords));
    for (const ToolCallFormat format : kTaggedFormats) {
      const auto found = keyword_not_enforced(parameters, format);
      ASSERT_TRUE(found.has_value()) << keywords;
      EXPECT_TRUE(found->starts_with(problem)) << *found;
      EXPECT_EQ(form_of(parameters, format, false), form_of(plain, format, false)) << keywords;
    }
    EXPECT_EQ(keyword_not_enforced(parameters, ToolCallFormat::kQwen), std::nullopt);
  }
  EXPECT_NE(keyword_not_enforced({{"required", {"a"}}}, ToolCallFormat::kGlm), std::nullopt);
}

TEST(CallFormTest, KeywordsThatExcludeNoObjectAreNoProblem) {
  for (const char* const keywords :
       {R"({"minProperties": 0})", R"({"unevaluatedProperties": true})", R"({"if": {}})",
        R"({"not": false})", R"({"propertyNames": {"type": "string"}})", R"({"anyOf": [true]})",
        R"({"patternProperties": {}})", R"({"dependentRequired": {}})", R"({"minLength": 3})",
        R"({"maxItems": 0, "contains": {"const": 1}})",
        R"({"additionalProperties": {"title": "x"}})", R"({"title": "anyOf", "x-if": 1})"}) {
    Json parameters =
        Json::parse(R"({"type": "object", "properties": {"a": {"type": "integer"}}})");
    parameters.update(Json::parse(keywords));
    for (const ToolCallFormat format : kTaggedFormats) {
      EXPECT_EQ(keyword_not_enforced(parameters, format), std::nullopt) << keywords;
    }
  }
}

TEST(CallFormTest, OnlyParametersThatReferOutsideTheDefinitionsCarryTheRest) {
  const Json parameters = Json::parse(R"({"properties": {
      "n": {"type": "array", "items": {"$ref": "#/properties/o"}},
      "o": {"type": "integer", "minimum": 1234}, "m": {"type": "integer"},
      "d": {"$ref": "#/$defs/D"}, "v": {"const": {"$ref": "#/properties/o"}}},
      "$defs": {"D": {"type": "integer", "maximum": 4321}}})");
  for (const bool is_strict : {true, false}) {
    const std::string form = form_of(parameters, ToolCallFormat::kQwen3Coder, is_strict);
    const auto count = [&form](std::string_view text) {
      size_t number = 0;
      for (size_t at = form.find(text); at != std::string::npos; at = form.find(text, at + 1)) {
        ++number;
      }
      return number;
    };
    EXPECT_EQ(count("1234"), 2u) << "of o itself, and below n";
    EXPECT_EQ(count("4321"), 1u);
    EXPECT_EQ(count(R"({"$ref":"#/$defs/parameters/properties/o"})"), 1u);
    EXPECT_EQ(count(R"({"$ref":"#/properties/o"})"), 1u) << "a value";
  }
}

TEST(CallFormTest, CopiesForReferencesAreBounded) {
  Json parameters = {{"properties", Json::object()}};
  for (int i = 0; i < 2000; ++i) {
    parameters["properties"][fmt::format("p{}", i)] = {
        {"type", "array"}, {"items", {{"$ref", "#"}}}, {"description", std::string(50, 'x')}};
  }
  for (const bool is_strict : {true, false}) {
    EXPECT_LT(form_of(parameters, ToolCallFormat::kGlm, is_strict).size(), size_t{2} << 20);
  }
}

}  // namespace
}  // namespace heddle::parsers
