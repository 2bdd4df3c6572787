// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_schema.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"
#include "grammar/testing/schema_validator.h"
#include "support/test_data.h"

namespace heddle::grammar {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::matches;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Result<Automaton> compile_schema(std::string text) {
  return compile({.kind = GrammarKind::kJsonSchema, .text = std::move(text)});
}

Automaton must_compile_schema(std::string text) {
  Result<Automaton> automaton = compile_schema(std::move(text));
  EXPECT_TRUE(automaton.ok()) << automaton.status().to_string();
  return std::move(automaton).value();
}

std::string refusal_of(std::string text) {
  const Result<Automaton> automaton = compile_schema(std::move(text));
  EXPECT_FALSE(automaton.ok());
  return automaton.ok() ? "" : automaton.status().message();
}

void expect_matches(const std::string& schema, std::vector<const char*> valid,
                    std::vector<const char*> invalid) {
  const Automaton automaton = must_compile_schema(schema);
  for (const char* const text : valid) EXPECT_TRUE(matches(automaton, text)) << schema << text;
  for (const char* const text : invalid) EXPECT_FALSE(matches(automaton, text)) << schema << text;
}

TEST(JsonSchemaTest, ObjectsHaveTheirPropertiesInOrder) {
  expect_matches(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {},
                     "ü\"": {"type": "null"}}, "required": ["b"]})",
                 {R"({"b":1})", R"({"a":1,"b":{}})", R"({"a": 1, "b": 1, "ü\"": null})"},
                 {"{}", R"({"a":1})", R"({"b":1,"a":1})", R"({"b":1,"c":1})", R"({"a":"x","b":1})",
                  R"({"b":1,})", R"({,"b":1})"});
}

TEST(JsonSchemaTest, OtherPropertiesAreNotTheKnownOnesInDisguise) {
  expect_matches(R"({"properties": {"a": {"type": "integer"}, "ab": false},
                     "additionalProperties": {"type": "string"}})",
                 {"{}", R"({"a":1,"b":"x"})", R"({"aa":"x","":"y"})", R"({"\n":"x"})"},
                 {R"({"a":"x"})", R"({"ab":"x"})", R"({"\u0061":"x"})", R"({"b":1})"});
}

TEST(JsonSchemaTest, ArraysHaveTheirItems) {
  expect_matches(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})",
                 {"[]", "[1]", R"([1,"a"])", R"([1, "a"])"}, {R"(["a"])", R"([1,"a",2])", "[1,]"});
  expect_matches(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
                 {"[1,2]", "[1, 2, 3]"}, {"[]", "[1]", "[1,2,3,4]", "[1,true]"});
  expect_matches(R"({"items": {"const": 1}, "minItems": 2})", {"[1,1]", "[1,1,1,1,1]"}, {"[1]"});
  expect_matches(R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"});
}

TEST(JsonSchemaTest, StringsCombineTheirConditions) {
  expect_matches(R"({"type": "string", "minLength": 2, "maxLength": 3})",
                 {R"("é€")", R"("abc")", R"("\"\\")"}, {R"("a")", R"("abcd")"});
  expect_matches(R"({"pattern": "^a+$", "maxLength": 3})", {R"("a")", R"("aaa")"},
                 {R"("")", R"("aaaa")", R"("ab")"});
  expect_matches(R"({"allOf": [{"pattern": "b"}, {"pattern": "^a|c$"}]})",
                 {R"("ab")", R"("abd")", R"("bc")"}, {R"("a")", R"("bd")"});
  expect_matches(R"({"pattern": "^[^x]$"})", {R"("\"")", R"("\n")", R"("é")", R"("\u0001")"},
                 {R"("x")", R"("\u0078")", "\"\n\""});
  expect_matches(R"({"format": "date"})", {R"("2024-02-29")", R"("2023-12-31")"},
                 {R"("2023-02-29")", R"("2023-04-31")", R"("1900-02-29")"});
  expect_matches(R"({"type": "string", "format": "anything"})", {R"("x")"}, {});
}

TEST(JsonSchemaTest, LargeBoundsCostNoStates) {
  const auto text_of = [](size_t size) { return '"' + std::string(size, 'a') + '"'; };
  const Automaton text =
      must_compile_schema(R"({"type": "string", "minLength": 2, "maxLength": 524288})");
  EXPECT_LT(text.num_states(), 100u);
  EXPECT_FALSE(matches(text, text_of(1)));
  EXPECT_TRUE(matches(text, text_of(524288)));
  EXPECT_FALSE(matches(text, text_of(524289)));
  EXPECT_TRUE(matches(text, R"("\"\\")"));
  EXPECT_FALSE(matches(text, R"("\n")"));

  const Automaton pattern =
      must_compile_schema(R"({"type": "string", "pattern": "^(ab|é\\n)*$", "maxLength": 100001})");
  EXPECT_LT(pattern.num_states(), 100u);
  std::string pairs = "\"";
  for (int i = 0; i < 50000; ++i) pairs += i % 2 == 0 ? "ab" : "é\\n";
  EXPECT_TRUE(matches(pattern, pairs + "\""));
  EXPECT_FALSE(matches(pattern, pairs + "ab\""));
  EXPECT_LT(must_compile_schema(R"({"pattern": "^\\w{1,65535}$"})").num_states(), 100u);

  const Automaton list =
      must_compile_schema(R"({"items": {"type": "integer"}, "minItems": 2, "maxItems": 100000})");
  EXPECT_LT(list.num_states(), 500u);
  std::string items = "[1";
  EXPECT_FALSE(matches(list, items + "]"));
  for (int i = 1; i < 100000; ++i) items += i % 2 == 0 ? ", 2" : ",3";
  EXPECT_TRUE(matches(list, items + "]"));
  EXPECT_FALSE(matches(list, items + ",4]"));
  EXPECT_FALSE(matches(list, R"([1,"2"])"));

  const Automaton map = must_compile_schema(
      R"({"additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3})");
  EXPECT_TRUE(matches(map, R"({"a":1})"));
  EXPECT_TRUE(matches(map, R"({"a": 1, "b": 2, "c": 3})"));
  EXPECT_FALSE(matches(map, R"({"a": 1, "b": 2, "c": 3, "d": 4})"));
  EXPECT_FALSE(matches(map, "{}"));
}

TEST(JsonSchemaTest, NumbersKeepToTheirBounds) {
  expect_matches(R"({"type": "integer", "minimum": -12, "exclusiveMaximum": 105})",
                 {"-12", "-1", "0", "9", "99", "104"}, {"-13", "105", "1000", "-0", "01", "1.0"});
  expect_matches(R"({"type": "integer", "minimum": 37})", {"37", "100", "999999"},
                 {"36", "9", "-1"});
  expect_matches(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5})",
                 {"0.1", "1", "1.5", "1.50", "0.000001", "1.05"},
                 {"0", "0.0", "1.51", "2", "-1", "1.500001", "1e0"});
  expect_matches(R"({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100})",
                 {"0", "7", "98"}, {"1", "99", "105", "-7"});
  expect_matches(R"({"type": "number"})", {"0", "-0.5", "1e5", "1.25E-3"},
                 {".5", "1.", "+1", "00"});
  expect_matches(R"({"type": "integer", "maximum": 9223372036854775807})", {"5"}, {"5.5"});
}

TEST(JsonSchemaTest, ChoicesAndReferencesCombine) {
  expect_matches(R"({"enum": ["a\"b", 1, null, {"x": [1]}]})",
                 {R"("a\"b")", "1", "null", R"({"x":[1]})"}, {"2", R"("a")"});
  expect_matches(R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"});
  expect_matches(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", {"3", "null"}, {"true"});
  expect_matches(R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                               {"properties": {"b": {"type": "null"}}}]})",
                 {R"({"a":1})", R"({"a":1,"b":null})"}, {R"({"b":null})", R"({"a":1,"b":1})"});
  expect_matches(R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
                     "next": {"$ref": "#/$defs/node"}}, "required": ["v"],
                     "additionalProperties": false}}, "$ref": "#/$defs/node"})",
                 {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
                 {R"({"next":{"v":1}})"});
  expect_matches(R"({"type": "object", "properties": {"k": {"type": "string"}},
                     "anyOf": [{"required": ["k"]}, {"maxProperties": 1}]})",
                 {"{}", R"({"k":"x"})"}, {R"({"k":1})"});
}

TEST(JsonSchemaTest, OneOfIsServedWhereBranchesExcludeEachOther) {
  expect_matches(R"({"oneOf": [{"type": "string"}, {"type": "integer"}]})", {"1", R"("x")"},
                 {"null"});
  expect_matches(R"({"oneOf": [
      {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
       "required": ["kind"]},
      {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]})",
                 {R"({"kind":"a","x":1})", R"({"kind":"b"})"}, {R"({"kind":"c"})", "{}"});
  for (
      const char* const schema :
      {R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})",
       R"({"oneOf": [{"properties": {"k": {"const": 1}}, "required": ["k"]}, {"type": "string"}]})",
       R"({"oneOf": [{"enum": [1, 2]}, {"enum": [2.0, 3]}]})",
       R"({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})"}) {
    EXPECT_THAT(refusal_of(schema), AllOf(HasSubstr("at \"#/oneOf\""), HasSubstr("use anyOf")));
  }
}

TEST(JsonSchemaTest, ADiscriminatorTellsBranchesApartWhoseTagHasADefault) {
  expect_matches(R"({"discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/A"}},
      "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
      "$defs": {"A": {"type": "object", "properties": {"kind": {"const": "a", "default": "a"},
                                                       "x": {"type": "integer"}}},
                "B": {"type": "object", "properties": {"kind": {"const": "b", "default": "b"}}}}})",
                 {R"({"kind":"a","x":1})", R"({"kind":"b"})"},
                 {"{}", R"({"kind":"c"})", R"({"kind":"b","x":1})"});
  EXPECT_THAT(refusal_of(R"({"discriminator": {"propertyName": "kind"},
                             "oneOf": [{"type": "object"}, {"type": "object"}]})"),
              HasSubstr("branches 0 and 1 may both be valid"));
}

TEST(JsonSchemaTest, AnEnumKeepsTheValuesThatSatisfyItsNeighbours) {
  expect_matches(R"({"enum": ["", "é", "abc", 7], "type": "string", "minLength": 1,
                     "maxLength": 2})",
                 {R"("é")"}, {R"("")", R"("abc")", "7"});
  expect_matches(R"({"enum": ["ab", "b\nb", 3], "pattern": "^b"})", {R"("b\nb")", "3"},
                 {R"("ab")"});
  expect_matches(R"({"enum": [-1, 0, 2, 2.5, 4, "x"], "minimum": 0, "exclusiveMaximum": 4})",
                 {"0", "2", "2.5", R"("x")"}, {"-1", "4"});
  expect_matches(R"({"enum": [3, 4, 6.5], "multipleOf": 2})", {"4"}, {"3", "6.5"});
  expect_matches(R"({"allOf": [{"enum": ["a", "bb"]}, {"minLength": 2}]})", {R"("bb")"},
                 {R"("a")"});
  EXPECT_THAT(refusal_of(R"({"const": "a", "minLength": 2})"), HasSubstr("matches no text at all"));
  EXPECT_THAT(refusal_of(R"({"enum": [1000000000000000001], "maximum": 1000000000000000000})"),
              HasSubstr("matches no text at all"));
}

TEST(JsonSchemaTest, NamesOfMapsMayBeListed) {
  expect_matches(R"({"type": "object", "propertyNames": {"type": "string"},
                     "additionalProperties": {"type": "number"}})",
                 {"{}", R"({"a":1,"b":2})"}, {R"({"a":"x"})"});
  expect_matches(R"({"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]},
                     "additionalProperties": {"type": "number"}, "required": ["b"]})",
                 {R"({"b":1})", R"({"b":1,"a":2})"}, {"{}", R"({"b":1,"c":2})", R"({"a":1})"});
  expect_matches(R"({"properties": {"a": {}, "c": {}}, "propertyNames": {"enum": ["a", "b"]}})",
                 {"{}", R"({"a":1})"}, {R"({"c":1})"});
  EXPECT_THAT(refusal_of(R"({"propertyNames": {"pattern": "^a"}})"),
              HasSubstr("at \"#/propertyNames\": propertyNames must be {\"type\": \"string\"}"));
}

TEST(JsonSchemaTest, MapsMayHaveToHoldSomething) {
  expect_matches(R"({"type": "object", "minProperties": 1})", {R"({"a":1})"}, {"{}", "{ }"});
  expect_matches(R"({"properties": {"a": {}, "b": {}}, "minProperties": 1})",
                 {R"({"a":1})", R"({"b":1})"}, {"{}"});
  expect_matches(R"({"type": "object", "minProperties": 0})", {"{}"}, {});
}

TEST(JsonSchemaTest, NullableAddsNullToItsType) {
  expect_matches(R"({"type": "string", "nullable": true})", {R"("x")", "null"}, {"1"});
  expect_matches(R"({"type": "string", "nullable": false})", {R"("x")"}, {"null"});
  expect_matches(R"({"type": "string", "nullable": true, "enum": ["a", null]})", {R"("a")", "null"},
                 {});
  expect_matches(R"({"type": "string", "nullable": true, "enum": ["a"]})", {R"("a")"}, {"null"});
}

TEST(JsonSchemaTest, ItemsOfAShortEnumMayHaveToDiffer) {
  expect_matches(R"({"type": "array", "items": {"$ref": "#/$defs/color"}, "uniqueItems": true,
                     "minItems": 1, "maxItems": 2, "$defs": {"color": {"enum": ["r", "g", "b"]}}})",
                 {R"(["r"])", R"(["b","r"])", R"(["r", "g"])"},
                 {"[]", R"(["r","r"])", R"(["r","g","b"])", R"(["x"])"});
  expect_matches(R"({"type": "array", "items": {"enum": [1, 1.0]}, "uniqueItems": true})",
                 {"[]", "[1]"}, {"[1,1]", "[1,1.0]"});
  expect_matches(R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[2]"},
                 {"[1,2]"});
  EXPECT_THAT(refusal_of(R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})"),
              HasSubstr("items is an enum of at most 8 values"));
  EXPECT_THAT(refusal_of(R"({"const": [1, 1], "uniqueItems": true})"),
              HasSubstr("cannot be combined"));
}

TEST(JsonSchemaTest, RefusalsNamePlaceValueAndRemedy) {
  EXPECT_THAT(refusal_of(R"({"properties": {"a": {"not": {"type": "null"}}}})"),
              HasSubstr("at \"#/properties/a/not\": not must be {} or a boolean"));
  EXPECT_THAT(refusal_of(R"({"items": {"if": true, "then": {"type": "null"}}})"),
              HasSubstr("at \"#/items/if\": the keyword \"if\" is not supported; leave it out"));
  EXPECT_THAT(refusal_of(R"({"items": {"uniqueItems": true}})"),
              HasSubstr("at \"#/items/uniqueItems\": supported only where items is an enum"));
  EXPECT_THAT(refusal_of(R"({"type": "text"})"), HasSubstr("type must be one of null, boolean"));
  EXPECT_THAT(refusal_of(R"({"items": [{}]})"), HasSubstr("for lists use prefixItems"));
  EXPECT_THAT(refusal_of(R"({"$ref": "other.json"})"),
              HasSubstr("\"other.json\" names no part of the schema"));
  EXPECT_THAT(refusal_of(R"({"$ref": "#/$defs/a"})"), HasSubstr("\"#/$defs/a\" does not exist"));
  EXPECT_THAT(refusal_of(R"({"$ref": "#"})"), HasSubstr("\"#\" leads back to itself"));
  EXPECT_THAT(refusal_of(R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}},
                            "$ref": "#/$defs/a"})"),
              HasSubstr("leads back to itself"));
  EXPECT_THAT(refusal_of(R"x({"type": "string", "pattern": "(?=x)"})x"),
              AllOf(HasSubstr("at \"#/pattern\""), HasSubstr("look-ahead")));
  EXPECT_THAT(refusal_of(R"({"type": "object", "minProperties": 2})"), HasSubstr("minProperties"));
  EXPECT_THAT(refusal_of(R"({"enum": [["a"]], "maxItems": 3})"), HasSubstr("at \"#/maxItems\""));
  EXPECT_THAT(refusal_of(R"({"dependencies": {"a": ["b"]}})"),
              HasSubstr("write the cases with anyOf"));
  EXPECT_THAT(refusal_of(R"({"$recursiveRef": 1})"), HasSubstr("use $ref instead"));
  EXPECT_THAT(refusal_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of("3"), HasSubstr("3 is no schema"));
  EXPECT_THAT(refusal_of("false"), HasSubstr("matches no text at all"));
  EXPECT_THAT(refusal_of(R"({"type": "integer", "minimum": 3, "maximum": 2})"),
              HasSubstr("matches no text at all"));
  EXPECT_THAT(refusal_of(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              HasSubstr("matches no text at all"));
}

TEST(JsonSchemaTest, UnknownKeywordsAreAnnotations) {
  expect_matches(R"({"type": "object", "propertyOrdering": ["b", "a"], "name": "x", "order": 1,
                     "errorMessage": {"type": "no"}, "$anchor": "here", "properties": {
                       "a": {"type": "integer", "$id": "https://example.com/a", "enumNames": 3},
                       "b": {"enum": ["x"], "enumDescriptions": ["an x"], "markdownDescription": ""}},
                     "required": ["a"], "then": {"required": ["z"]}, "minContains": 2})",
                 {R"({"a":1})", R"({"a":1,"b":"x"})"}, {R"({"a":"x"})", R"({"b":"x"})"});
}

TEST(JsonSchemaTest, KeywordsThatExcludeNothingAreTaken) {
  for (const char* const nothing : {R"("unevaluatedProperties": true)",
                                    R"("unevaluatedProperties": {"title": "any"})",
                                    R"("unevaluatedItems": {})",
                                    R"("if": {})",
                                    R"("if": {"type": "null"})",
                                    R"("if": {"const": 1}, "then": {}, "else": true)",
                                    R"("if": {}, "else": {"const": 1})",
                                    R"("if": false, "then": {"const": 1})",
                                    R"("not": false)",
                                    R"("contains": {"const": 1}, "minContains": 0)",
                                    R"("dependentRequired": {})",
                                    R"("dependentRequired": {"a": []})",
                                    R"("dependentSchemas": {"a": {"description": "x"}})",
                                    R"("dependencies": {"a": true, "b": []})",
                                    R"("patternProperties": {})",
                                    R"("patternProperties": {"^x": true})",
                                    R"("propertyNames": true)",
                                    R"("propertyNames": {"minLength": 0})",
                                    R"("additionalItems": true)",
                                    R"("allOf": [])",
                                    R"("prefixItems": [])",
                                    R"("allOf": [{}, {"minItems": 0}])",
                                    R"("pattern": "")",
                                    R"("uniqueItems": false)",
                                    R"("maxProperties": 2000000000)"}) {
    const std::string schema = fmt::format(
        R"({{"type": "object", "properties": {{"a": {{"type": "integer"}}}}, {}}})", nothing);
    expect_matches(schema.c_str(), {"{}", R"({"a":1})"}, {R"({"a":"x"})", "1"});
  }
  expect_matches(R"({"enum": [[1], {"a": 2}], "minItems": 0, "properties": {"a": {}}})",
                 {"[1]", R"({"a":2})"}, {"[]"});
  for (const auto& [schema, keyword] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"unevaluatedProperties": {"type": "null"}})", "unevaluatedProperties"},
           {R"({"if": {}, "then": {"type": "null"}})", "if"},
           {R"({"if": {"const": 1}, "else": {"type": "null"}})", "if"},
           {R"({"contains": {}, "minContains": 0, "maxContains": 3})", "contains"},
           {R"({"contains": true})", "contains"},
           {R"({"dependentRequired": {"a": ["b"]}})", "dependentRequired"},
           {R"({"dependencies": {"a": {"required": ["b"]}}})", "dependencies"},
           {R"({"patternProperties": {"^x": {"type": "null"}}})", "patternProperties"},
           {R"({"propertyNames": {"minLength": 1}})", "propertyNames"},
           {R"({"anyOf": []})", "anyOf"}}) {
    EXPECT_THAT(refusal_of(schema), HasSubstr(fmt::format("at \"#/{}\"", keyword))) << schema;
  }
}

TEST(JsonSchemaTest, LeastLengthsAndItemsCostNoStates) {
  const auto text_of = [](size_t length) { return '"' + std::string(length, 'a') + '"'; };
  for (const char* const pattern : {"^[a-z ]+$", "^\\S(.*\\S)?$", "^https?://|a", "^a[ab]*$"}) {
    SCOPED_TRACE(pattern);
    Json schema = {{"type", "string"}, {"pattern", pattern}, {"minLength", 50000}};
    const Automaton text = must_compile_schema(schema.dump());
    EXPECT_LT(text.num_states(), 200u);
    EXPECT_FALSE(matches(text, text_of(49999)));
    EXPECT_TRUE(matches(text, text_of(50000)));
    EXPECT_TRUE(matches(text, text_of(60000)));
    schema["maxLength"] = 50001;
    const Automaton bounded = must_compile_schema(schema.dump());
    EXPECT_FALSE(matches(bounded, text_of(49999)));
    EXPECT_TRUE(matches(bounded, text_of(50001)));
    EXPECT_FALSE(matches(bounded, text_of(50002)));
  }
  const auto list_of = [](int count) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) text += i == 0 ? "1" : i % 2 == 0 ? ", 1" : ",2";
    return text + "]";
  };
  for (const int count : {65, 66, 97, 1024, 1025, 33333}) {
    Json schema = {{"items", {{"type", "integer"}}}, {"minItems", count}};
    const Automaton list = must_compile_schema(schema.dump());
    EXPECT_LT(list.num_states(), 1000u);
    EXPECT_FALSE(matches(list, list_of(count - 1)));
    EXPECT_TRUE(matches(list, list_of(count)));
    EXPECT_TRUE(matches(list, list_of(count + 7)));
    for (const int more : {0, 3, 500}) {
      schema["maxItems"] = count + more;
      const Automaton bounded = must_compile_schema(schema.dump());
      EXPECT_FALSE(matches(bounded, list_of(count - 1)));
      EXPECT_TRUE(matches(bounded, list_of(count + more)));
      EXPECT_FALSE(matches(bounded, list_of(count + more + 1)));
    }
  }
  EXPECT_LT(must_compile_schema(R"({"items": {}, "minItems": 1000000000})").num_states(), 3000u);
  const Automaton prefixed = must_compile_schema(
      R"({"prefixItems": [{"type": "null"}, {"type": "null"}], "items": {"type": "integer"},
          "minItems": 100})");
  EXPECT_TRUE(matches(prefixed, "[null,null," + list_of(98).substr(1)));
  EXPECT_FALSE(matches(prefixed, "[null,null," + list_of(97).substr(1)));
  EXPECT_FALSE(matches(prefixed, list_of(100)));
}

// All texts of "a" and "b" up to so many characters, shorter ones first.
std::vector<std::string> all_texts(size_t most) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < most; ++i) {
    for (const char letter : {'a', 'b'}) texts.push_back(texts[i] + letter);
  }
  return texts;
}

TEST(JsonSchemaTest, LengthsGoTogetherWithPatternsThatHaveSomeLengthsOnly) {
  constexpr size_t kMost = 9;
  const std::vector<std::string> texts = all_texts(kMost);
  for (const char* const pattern :
       {"^(ab)*$", "^(aba)+$", "^(aa|bbb)*$", "^a*b$", "^[ab]{4}(b[ab])*$", "^((aaa)*|(bbbb)*)$",
        "^(aaaa|b{7})$", "^a(ba){1,3}b?$", "^b*(aab)*$", "^((ab)*|a{5}b*)a$", "^(b|(aaaaa)+)$",
        "a$", "^([ab]{3}(a{4}|b)?)?$"}) {
    const std::regex expression(pattern);
    std::vector<bool> is_matching;
    for (const std::string& text : texts) {
      is_matching.push_back(std::regex_search(text, expression));
    }
    for (size_t least = 0; least <= kMost; ++least) {
      for (size_t most = least; most <= kMost; most += most - least + 1) {
        Json schema = {{"type", "string"}, {"pattern", pattern}, {"maxLength", most}};
        if (least > 0) schema["minLength"] = least;
        SCOPED_TRACE(schema.dump());
        std::set<std::string> prefixes;  // of the valid texts
        for (size_t i = 0; i < texts.size(); ++i) {
          if (!is_matching[i] || texts[i].size() < least || texts[i].size() > most) continue;
          for (size_t j = 0; j <= texts[i].size(); ++j) prefixes.insert(texts[i].substr(0, j));
        }
        if (prefixes.empty()) {
          EXPECT_THAT(refusal_of(schema.dump()), HasSubstr("contradict each other"));
          continue;
        }
        const Automaton automaton = must_compile_schema(schema.dump());
        for (size_t i = 0; i < texts.size(); ++i) {
          const std::string& text = texts[i];
          const bool is_valid = is_matching[i] && text.size() >= least && text.size() <= most;
          ASSERT_EQ(matches(automaton, '"' + text + '"'), is_valid) << text;
          ASSERT_EQ(testing::can_begin(automaton, '"' + text), prefixes.contains(text)) << text;
        }
      }
      Json schema = {{"type", "string"}, {"pattern", pattern}, {"minLength", least}};
      const Result<Automaton> automaton = compile_schema(schema.dump());
      for (size_t i = 0; i < texts.size() && automaton.ok(); ++i) {
        ASSERT_EQ(matches(*automaton, '"' + texts[i] + '"'),
                  is_matching[i] && texts[i].size() >= least)
            << schema << texts[i];
      }
    }
  }
}

TEST(JsonSchemaTest, LengthsBesidePatternsCostNoStates) {
  const auto repeated = [](std::string_view text, size_t count) {
    std::string all = "\"";
    for (size_t i = 0; i < count; ++i) all += text;
    return all + "\"";
  };
  const Automaton pairs =
      must_compile_schema(R"({"pattern": "^(a\\n)*$", "minLength": 99999, "maxLength": 100001})");
  EXPECT_LT(pairs.num_states(), 20u);
  EXPECT_FALSE(matches(pairs, repeated("a\\n", 49999)));
  EXPECT_TRUE(matches(pairs, repeated("a\\n", 50000)));
  EXPECT_FALSE(matches(pairs, repeated("a\\n", 50001)));
  const Automaton codes =
      must_compile_schema(R"({"pattern": "^[0-9]{4}(-[0-9]{2})*$", "minLength": 1000000})");
  EXPECT_TRUE(matches(codes, "\"1234" + repeated("-12", 333332).substr(1)));
  EXPECT_FALSE(matches(codes, "\"1234" + repeated("-12", 333331).substr(1)));
  EXPECT_THAT(refusal_of(R"({"pattern": "^(é€)*$", "minLength": 7, "maxLength": 7})"),
              HasSubstr("contradict each other"));
  // Lengths that repeat after 3 * 5 * 7 * 11 * 13 * 17 characters.
  EXPECT_THAT(
      refusal_of(R"({"pattern": "^((a{3})*|(b{5})*|(c{7})*|(d{11})*|(e{13})*|(f{17})*)$",
                     "minLength": 9000000, "maxLength": 9000001})"),
      HasSubstr("at \"#/minLength\": lengths of at least 9000000 do not go together with this"));
}

// Each of these is accepted alone; a schema with many of them would take minutes.
TEST(JsonSchemaTest, LengthsBesidePatternsAreBoundedForAllPlacesTogether) {
  const struct {
    const char* schema;
    const char* bound;  // where the text's length is bounded from below
  } kCases[] = {
      {R"({"type": "string", "pattern": PATTERN, "minLength": 9000})", "minLength"},
      {R"({"pattern": PATTERN, "minLength": 9000, "maxLength": 9001})", "minLength"},
      {R"({"type": "array", "items": {"pattern": PATTERN, "minLength": 9000}})", "items/minLength"},
      {R"({"anyOf": [{"type": "null"}, {"pattern": PATTERN, "minLength": 9000}]})",
       "anyOf/1/minLength"},
  };

  for (const auto& [text, bound] : kCases) {
    std::string property = text;
    property.replace(property.find("PATTERN"), 7, R"("^((a{3})*|(b{5})*|(c{7})*|(d{11})*)$")");
    const auto schema_of = [&](size_t num_properties) {
      Json schema = {{"type", "object"}, {"properties", Json::object()}};
      for (size_t i = 0; i < num_properties; ++i) {
        schema["properties"][fmt::format("p{}", i)] = Json::parse(property);
      }
      return schema;
    };
    const Automaton few = must_compile_schema(schema_of(4).dump());
    EXPECT_GT(few.num_window_bytes(), 0U) << property;
    EXPECT_LE(few.num_window_bytes(), CountWindows::kMaxTotalWork / 8) << property;
    constexpr size_t kMany = 200;
    const std::string refusal = refusal_of(schema_of(kMany).dump());
    EXPECT_THAT(refusal, HasSubstr("too many with all the other patterns")) << property;
    EXPECT_THAT(refusal, HasSubstr(fmt::format("/{}\"", bound)));
    // As many are left as are served.
    const WeakenedSchema weakened = weaken_schema(schema_of(kMany), {}).value();
    const Json& kept = weakened.schema["properties"];
    EXPECT_NE(kept["p0"], kept[fmt::format("p{}", kMany - 1)]) << property;
  }
}

TEST(JsonSchemaTest, PlacesAreJsonPointers) {
  EXPECT_THAT(refusal_of(R"({"properties": {"a/b~c": {"items": {"type": "text"}}}})"),
              HasSubstr(R"(at "#/properties/a~1b~0c/items/type")"));
  EXPECT_THAT(refusal_of(R"({"properties": {"": {"type": "text"}}})"),
              HasSubstr(R"(at "#/properties//type")"));
  EXPECT_THAT(refusal_of(R"({"$defs": {"a b/c": {"type": "text"}}, "items":
                             {"$ref": "#/$defs/a%20b~1c"}})"),
              HasSubstr(R"(at "#/$defs/a b~1c/type")"));
}

TEST(JsonSchemaTest, AnIdBelowAnyNameChangesWhatReferencesMean) {
  for (const char* const name : {"a/b", "a~b", "a%b", "0", "", "properties"}) {
    const Json part = Json::parse(R"({"$id": "part", "$ref": "#/$defs/v",
                                      "$defs": {"v": {"type": "string"}}})");
    const Json schema = {{"$defs", {{"v", {{"type", "integer"}}}}},
                         {"properties", {{name, part}}},
                         {"required", {name}}};
    const Automaton automaton = must_compile_schema(schema.dump());
    EXPECT_TRUE(matches(automaton, Json{{name, "x"}}.dump())) << name;
    EXPECT_FALSE(matches(automaton, Json{{name, 1}}.dump())) << name;
  }
  // A pointer into a part with an "$id", and a property that is called so.
  expect_matches(R"({"$defs": {"v": {"type": "integer"}, "part": {"$id": "part",
                     "$defs": {"v": {"type": "string"}, "w": {"items": {"$ref": "#/$defs/v"}}}}},
                     "$ref": "#/$defs/part/$defs/w"})",
                 {R"(["x"])"}, {"[1]"});
  expect_matches(R"({"$defs": {"v": {"type": "integer"}},
                     "properties": {"$id": {"type": "string"}, "a": {"$ref": "#/$defs/v"}}})",
                 {R"({"$id":"x","a":1})"}, {R"({"a":"x"})"});
}

TEST(JsonSchemaTest, AnIdBelowTheRootChangesWhatReferencesMean) {
  expect_matches(R"({"$id": "https://example.com/root", "$defs": {"v": {"type": "integer"}},
                     "properties": {"a": {"$ref": "#/$defs/v"}, "b": {"$id": "part",
                       "$defs": {"v": {"type": "string"}}, "$ref": "#/$defs/v"}}})",
                 {R"({"a":1,"b":"x"})"}, {R"({"b":1})", R"({"a":"x"})"});
}

TEST(JsonSchemaTest, NothingSatisfiesTheOppositeOfEverything) {
  expect_matches(R"({"properties": {"a": {"not": {}}, "b": {"anyOf": [{"not": true},
                     {"type": "null"}]}, "c": {"not": false, "type": "integer"}}})",
                 {"{}", R"({"b":null})", R"({"c":1})"}, {R"({"a":1})", R"({"b":1})"});
  EXPECT_THAT(refusal_of(R"({"not": {}})"), HasSubstr("matches no text at all"));
}

TEST(JsonSchemaTest, AFormatChoosesAmongTheValuesOfAnEnum) {
  expect_matches(R"({"enum": ["2024-01-31", "2024-02-31", 7], "format": "date"})",
                 {R"("2024-01-31")", "7"}, {R"("2024-02-31")"});
  expect_matches(R"({"enum": ["10.0.0.1", "10.0.0.256"], "allOf": [{"format": "ipv4"}]})",
                 {R"("10.0.0.1")"}, {R"("10.0.0.256")"});
  expect_matches(R"({"const": "anything", "format": "hostname"})", {R"("anything")"}, {});
  // Listed texts may be anything that the format allows. Free texts are restricted to a common
  // part.
  expect_matches(R"({"enum": ["a@b.c", "Sales+EU@X-1.example.COM", "a b@c.d", "a@-b.c"],
                     "format": "email"})",
                 {R"("a@b.c")", R"("Sales+EU@X-1.example.COM")"}, {R"("a b@c.d")", R"("a@-b.c")"});
  expect_matches(R"({"enum": ["10:00:00z", "23:59:60Z", "24:00:00Z", "10:00:00"],
                     "format": "time"})",
                 {R"("10:00:00z")", R"("23:59:60Z")"}, {R"("24:00:00Z")", R"("10:00:00")"});
  expect_matches(R"({"const": "1985-04-12t23:20:50.1234567891z", "format": "date-time"})",
                 {R"("1985-04-12t23:20:50.1234567891z")"}, {});
  EXPECT_THAT(refusal_of(R"({"const": "x", "format": "email"})"),
              HasSubstr("matches no text at all"));
}

// Checks the documents that a weakened schema lets through, and what was left out of it.
void expect_weakened(const char* text, std::vector<const char*> left_out,
                     std::vector<const char*> valid, std::vector<const char*> invalid) {
  SCOPED_TRACE(text);
  const WeakenedSchema weakened = weaken_schema(Json::parse(text), {}).value();
  ASSERT_EQ(weakened.left_out.size(), left_out.size());
  for (size_t i = 0; i < left_out.size(); ++i) {
    EXPECT_THAT(weakened.left_out[i], HasSubstr(left_out[i]));
  }
  expect_matches(weakened.schema.dump().c_str(), std::move(valid), std::move(invalid));
}

TEST(JsonSchemaTest, OnlyWhatCannotBeKeptToIsLeftOut) {
  expect_weakened(R"({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true,
                      "items": {"type": "integer"}}, "b": {"type": "string"}}, "required": ["a"],
                      "patternProperties": {"^x": {"type": "null"}}})",
                  {"#/patternProperties", "#/properties/a/uniqueItems"},
                  {R"({"a":[1,1]})", R"({"a":[],"b":"x"})"}, {"{}", R"({"a":["x"]})"});
  expect_weakened(R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})", {"#/oneOf"}, {"1.5"},
                  {"true"});
  expect_weakened(R"({"anyOf": [{"not": {"const": 1}, "type": "integer"}, {"not": {}}]})",
                  {"#/anyOf/0/not"}, {"1"}, {"true"});
  expect_weakened(R"x({"type": "string", "pattern": "(?=a)", "maxLength": 2, "$ref": "other"})x",
                  {"#/$ref", "#/pattern"}, {R"("ab")"}, {R"("abc")", "1"});
  expect_weakened(R"({"type": "object", "not": {}, "required": ["a"]})", {"#/not"}, {R"({"a":1})"},
                  {"{}", "1"});
  expect_weakened(R"({"type": "string", "pattern": "^(a|b)*a(a|b){20}$", "maxLength": 2})",
                  {"#/pattern"}, {R"("c")"}, {R"("ccc")", "1"});
  EXPECT_TRUE(weaken_schema(3, {}).value().schema.is_null());
}

TEST(JsonSchemaTest, ManyKeywordsAreLeftOutInFewRounds) {
  const struct {
    const char* property;
    const char* keyword;
    const char* kept;
  } kCases[] = {
      {R"({"type": "integer", "dependentRequired": {"a": ["b"]}})", "dependentRequired",
       R"({"type": "integer"})"},
      {R"x({"type": "string", "pattern": "(?=a)", "maxLength": 3})x", "pattern",
       R"({"type": "string", "maxLength": 3})"},
      {R"({"type": "number", "multipleOf": 0.5, "minimum": 0})", "multipleOf",
       R"({"type": "number", "minimum": 0})"},
      {R"({"type": "array", "uniqueItems": true, "maxItems": 3})", "uniqueItems",
       R"({"type": "array", "maxItems": 3})"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf",
       R"({"anyOf": [{"type": "integer"}, {"type": "number"}]})"},
      {R"({"type": "null", "$ref": "other.json"})", "$ref", R"({"type": "null"})"},
      {R"({"type": "object", "minProperties": 2, "properties": {"a": {}, "b": {}}})",
       "minProperties", R"({"type": "object", "properties": {"a": {}, "b": {}}})"},
      {R"({"type": "array", "items": {"if": {}, "then": {"items": {"contains": 1}}}})", "items/if",
       R"({"type": "array", "items": {"then": {"items": {"contains": 1}}}})"},
  };

  constexpr size_t kMany = 304;
  constexpr size_t kKinds = std::size(kCases);
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", {"p0"}}};
  Json kept = schema;
  for (size_t i = 0; i < kMany; ++i) {
    const std::string name = fmt::format("p{}", i);
    schema["properties"][name] = Json::parse(kCases[i % kKinds].property);
    kept["properties"][name] = Json::parse(kCases[i % kKinds].kept);
  }
  int num_rounds = 0;
  const CompileCheck check = [&num_rounds] {
    ++num_rounds;
    return ok_status();
  };
  const WeakenedSchema weakened = weaken_schema(schema, {.check = &check}).value();
  EXPECT_EQ(weakened.schema, kept);
  EXPECT_LE(num_rounds, 4);
  std::set<std::string> reasons(weakened.left_out.begin(), weakened.left_out.end());
  EXPECT_EQ(reasons.size(), kMany);
  for (size_t i = 0; i < kMany; ++i) {
    const std::string place =
        fmt::format("at \"#/properties/p{}/{}\": ", i, kCases[i % kKinds].keyword);
    EXPECT_TRUE(std::ranges::any_of(reasons, [&](const std::string& reason) {
      return reason.find(place) != std::string::npos;
    })) << place;
  }
}

TEST(JsonSchemaTest, LongNamesAreShownByTheirEnds) {
  const std::string key = std::string(5000, 'k') + "\xC3\xA9";
  Json inside = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  Json kept = inside;
  constexpr int kMany = 300;
  for (int i = 0; i < kMany; ++i) {
    const std::string name = fmt::format("p{}", i);
    inside["properties"][name] = {
        {"type", "integer"}, {"minimum", 2}, {"maximum", 1}, {"contains", 3}};
    kept["properties"][name] = {{"type", "integer"}, {"minimum", 2}};
    inside["required"].push_back(name);
    kept["required"].push_back(name);
  }
  const Json schema = {{"properties", {{key, inside}}}, {"required", {key}}};
  const WeakenedSchema weakened = weaken_schema(schema, {}).value();
  EXPECT_EQ(weakened.schema, Json({{"properties", {{key, kept}}}, {"required", {key}}}));
  EXPECT_EQ(weakened.left_out.size(), size_t{2 * kMany});
  size_t num_bytes = 0;
  for (const std::string& reason : weakened.left_out) num_bytes += reason.size();
  EXPECT_LE(num_bytes, size_t{1000 * 2 * kMany});
  EXPECT_THAT(weakened.left_out, Contains(HasSubstr("kkk\xC3\xA9/properties/p0/contains\": ")));
}

TEST(JsonSchemaTest, NumbersBeyond64BitsAreWrittenWithAllTheirDigits) {
  expect_matches(
      R"({"enum": [18446744073709551616, -9223372036854775809, 1e400, 7]})",
      {"18446744073709551616", "-9223372036854775809", "1e400", "7"},
      {"18446744073709551615", "1.8446744073709552e+19", "18446744073709551617", "null"});
  expect_matches(
      R"({"const": {"a": [123456789012345678901234567890]}})",
      {R"({"a":[123456789012345678901234567890]})"},
      {R"({"a":[123456789012345678901234567891]})", R"({"a":[1.2345678901234568e+29]})"});
  expect_matches(R"({"type": "integer", "enum": [18446744073709551616, "x", 1.5]})",
                 {"18446744073709551616"}, {"1.5", "\"x\""});
  expect_matches(R"({"type": "string", "enum": [18446744073709551616, "x"]})", {"\"x\""},
                 {"18446744073709551616"});
  expect_matches(R"({"allOf": [{"enum": [100000000000000000000, 100000000000000000001, 3]},
                     {"enum": [1e20, 3.0]}]})",
                 {"100000000000000000000", "3"}, {"100000000000000000001", "1e20"});
  expect_matches(R"({"type": "integer", "minimum": -18446744073709551616, "maximum":
                     18446744073709551616, "exclusiveMaximum": 1e999})",
                 {"0", "-5", "999999999999999999"}, {"0.5"});
  for (const auto& [bound, shown] :
       {std::pair(R"("minimum": 18446744073709551616)", "minimum 18446744073709551616"),
        std::pair(R"("exclusiveMaximum": -1.5e400)", "exclusiveMaximum -1.5e400"),
        std::pair(R"("minimum": 1e300)", "minimum 1e+300"),
        std::pair(R"("maximum": -1000000000000000000)", "maximum -1000000000000000000")}) {
    EXPECT_THAT(refusal_of(fmt::format(R"({{"type": "integer", {}}})", bound)),
                HasSubstr(std::string(shown) + " (numbers have at most 18 digits)"));
  }
}

TEST(JsonSchemaTest, NumbersOfAnySizeMeanTheirValue) {
  const std::string integers =
      R"([1.5e400, -15e399, 1e300, 1.5e19, 18446744073709551616, 5.0, 1e-400, 1e400, 2.5])";
  const auto enum_with = [&](std::string_view keywords) {
    return fmt::format(R"({{"enum": {}, {}}})", integers, keywords);
  };
  expect_matches(
      enum_with(R"("type": "integer")"),
      {"1.5e400", "-15e399", "1e+300", "1.5e+19", "18446744073709551616", "5.0", "1e400"}, {"2.5"});
  expect_matches(enum_with(R"("minimum": 1.4e400)"), {"1.5e400"}, {"1e400", "1e+300", "-15e399"});
  expect_matches(enum_with(R"("exclusiveMinimum": 1.5e19, "maximum": 10e399)"),
                 {"18446744073709551616", "1e+300", "1e400"}, {"1.5e+19", "1.5e400", "5.0"});
  expect_matches(enum_with(R"("exclusiveMaximum": 1.0e-12, "minimum": -150e398)"), {"-15e399"},
                 {"5.0", "2.5"});
  expect_matches(enum_with(R"("multipleOf": 64)"), {"1.5e400", "18446744073709551616"},
                 {"5.0", "2.5"});
  expect_matches(R"({"allOf": [{"enum": [1e400, 2e400, 15]}, {"enum": [10e399, 1.5E1]}]})",
                 {"1e400", "15"}, {"2e400"});
  expect_matches(R"({"type": "string", "maxLength": 1e400})", {"\"ab\""}, {"1"});
  expect_matches(R"({"type": "array", "items": {"const": 1}, "minItems": 1.0,
                     "maxItems": 18446744073709551616})",
                 {"[1]", "[1,1,1]"}, {"[]"});
  expect_matches(R"({"type": "object", "maxProperties": 1e20})", {"{}", R"({"a":1})"}, {"1"});
  for (const char* const keyword : {"minItems", "minLength"}) {
    for (const char* const count : {"18446744073709551616", "1e20", "1.5e400"}) {
      const auto schema =
          fmt::format(R"({{"type": ["array", "string"], "{}": {}}})", keyword, count);
      EXPECT_THAT(refusal_of(schema), HasSubstr(keyword)) << schema;
      EXPECT_THAT(refusal_of(schema), Not(HasSubstr("must be"))) << schema;
    }
  }
  for (const char* const count : {"-1e400", "-18446744073709551616", "1.5", "-0.5"}) {
    EXPECT_THAT(refusal_of(fmt::format(R"({{"type": "array", "minItems": {}}})", count)),
                HasSubstr("minItems must be an integer of 0 or more"));
  }
}

TEST(JsonSchemaTest, ContradictionsOneInsideTheOtherLeaveOutTheSchemaAndSaySo) {
  Json schema = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 120; ++i) {
    schema["$defs"][fmt::format("d{}", i)] = {
        {"properties", {{"a", {{"$ref", fmt::format("#/$defs/d{}", i + 1)}}}}},
        {"required", {"a"}},
        {"minProperties", 3},
        {"maxProperties", 2}};
  }
  schema["$defs"]["d120"] = {{"type", "null"}};
  const WeakenedSchema weakened = weaken_schema(schema, {}).value();
  EXPECT_TRUE(weakened.schema.is_null());
  EXPECT_THAT(weakened.left_out.back(), HasSubstr("all of the schema is left out"));
}

TEST(JsonSchemaTest, HostileSchemasAreRefusedWithinBounds) {
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += R"({"items":)";
  deep += "{}" + std::string(1000, '}');
  EXPECT_THAT(refusal_of(deep), HasSubstr("nested 1001 levels deep; at most 64"));
  EXPECT_THAT(refusal_of(std::string(kMaxSchemaBytes + 1, ' ')), HasSubstr("at most 262144"));
  EXPECT_THAT(refusal_of(R"({"type": "string", "minLength": 10000000000})"),
              HasSubstr("lengths of at least 10000000000 are not supported"));
  EXPECT_THAT(refusal_of(R"({"type": "array", "minItems": 10000000000})"),
              HasSubstr("10000000000 items are more than an answer can have"));
  EXPECT_THAT(
      refusal_of(R"({"type": "string", "minLength": 9000, "pattern": "^(a|b)*a(a|b){20}$"})"),
      HasSubstr("states"));
  Json choices = {{"$defs", Json::object()}, {"$ref", "#/$defs/s0"}};
  for (int i = 0; i < 40; ++i) {
    const Json next = {{"$ref", fmt::format("#/$defs/s{}", i + 1)}};
    choices["$defs"][fmt::format("s{}", i)] = {{"allOf", {{{"anyOf", {next, next}}}}}};
  }
  choices["$defs"]["s40"] = Json::object();
  EXPECT_THAT(refusal_of(choices.dump()), HasSubstr("more than 1024 alternatives"));
}

TEST(JsonSchemaTest, WhitespaceCanBeLeftOut) {
  const Automaton compact = std::move(compile({.kind = GrammarKind::kJsonSchema,
                                               .text = R"({"properties": {"a": {}}})",
                                               .allows_whitespace = false}))
                                .value();
  EXPECT_TRUE(matches(compact, R"({"a":[1,2]})"));
  EXPECT_FALSE(matches(compact, R"({"a": [1,2]})"));
}

// Schemas as users send them, for random walks.
const char* const kSchemas[] = {
    R"({"type": "object"})",
    R"({"type": "array", "items": {"type": ["integer", "null"]}, "maxItems": 4})",
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age":
       {"type": "integer", "minimum": 0, "maximum": 130}, "tags": {"type": "array", "items":
       {"enum": ["a", "b\"c", "é"]}}, "mail": {"format": "email"}}, "required": ["name", "age"],
       "additionalProperties": false})",
    R"({"$defs": {"tree": {"type": "object", "properties": {"value": {"type": "number",
       "exclusiveMinimum": -1, "maximum": 2.5}, "children": {"type": "array", "maxItems": 2,
       "items": {"$ref": "#/$defs/tree"}}}, "required": ["value"], "additionalProperties": false}},
       "$ref": "#/$defs/tree"})",
    R"({"anyOf": [{"type": "string", "pattern": "^[a-c]{2,4}$"}, {"type": "boolean"},
       {"type": "object", "properties": {"k": {"const": "x"}}, "required": ["k"],
        "additionalProperties": {"type": "integer", "multipleOf": 3}}]})",
    R"({"oneOf": [{"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "minItems":
       2}, {"type": "object", "properties": {"t": {"enum": [1, 2.5, null]}}, "required": ["t"]}]})",
    R"({"type": "string", "minLength": 3, "maxLength": 6})",
    R"({"type": "object", "minProperties": 1, "propertyNames": {"enum": ["a", "b"]},
       "additionalProperties": {"type": "array", "items": {"enum": ["x", 1, 2]}, "minItems": 1,
       "uniqueItems": true}})",
    R"({"type": "object", "properties": {"a": {"type": "integer", "nullable": true}, "b": {"enum":
       ["x", "yy"], "minLength": 2}}, "required": ["a"]})",
    R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
       {"properties": {"a": {"minimum": 5}, "b": {"type": "string"}}}]})",
    R"({"type": "array", "minItems": 1, "maxItems": 20, "items": {"type": "string", "minLength": 2,
       "maxLength": 40}})",
    R"({"type": "string", "pattern": "^(ab|[^a]c)*$", "minLength": 4, "maxLength": 9})",
    R"({"type": "array", "items": {"type": "string", "pattern": "^(abc|name )*$", "minLength": 70,
       "maxLength": 71}})",
    R"({"type": "object", "additionalProperties": {"type": "array", "maxItems": 12, "items":
       {"type": "boolean"}}, "maxProperties": 4})",
    R"({"type": "array", "items": {"anyOf": [{"enum": ["1.2.3.4", "1.2.3", 5], "format": "ipv4"},
       {"enum": ["2024-02-29", "2023-02-29"], "format": "date"}, {"format": "uuid"}]}})",
};

// Draws tokens that masks allow until the text ends.
std::string random_walk(const std::shared_ptr<const TokenGrammar>& grammar, std::mt19937& random) {
  const auto state = grammar->start();
  const auto masks = grammar->masks().num_words();
  std::vector<uint32_t> mask(masks);
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    EXPECT_TRUE(state->fill_mask(mask).ok());
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < grammar->masks().vocab_size(); ++token) {
      if (testing::is_allowed(mask, token)) allowed.push_back(token);
    }
    EXPECT_FALSE(allowed.empty()) << text;
    if (allowed.empty()) break;
    const bool may_end = testing::is_allowed(mask, testing::kEndToken);
    EXPECT_EQ(may_end, state->is_complete());
    TokenId token = allowed[random() % allowed.size()];
    // Long texts are brought to an end: closing what is open is likelier than opening.
    if (i > 60) {
      std::vector<TokenId> closing;
      for (const char letter : {'"', '}', ']'}) {
        if (testing::is_allowed(mask, letter)) closing.push_back(letter);
      }
      if (!closing.empty()) token = closing[random() % closing.size()];
    }
    if (may_end && (i > 60 || random() % 4 == 0)) token = testing::kEndToken;
    EXPECT_TRUE(state->accept(token)) << text << " then " << token;
    if (token == testing::kEndToken) return text;
    text += grammar->masks().bytes(token);
  }
  return text;
}

TEST(JsonSchemaTest, RandomWalksThroughMasksAreValidDocuments) {
  const auto masks = testing::small_vocabulary();
  std::mt19937 random(7);
  for (const char* const text : kSchemas) {
    SCOPED_TRACE(text);
    const Json schema = Json::parse(text);
    const auto grammar = testing::token_grammar(must_compile_schema(text), masks);
    for (int i = 0; i < 60; ++i) {
      const std::string document = random_walk(grammar, random);
      const Json value = Json::parse(document, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << document;
      ASSERT_TRUE(testing::is_valid(value, schema, schema)) << document;
    }
  }
}

struct SuiteCounts {
  int num_served = 0;
  int num_refused = 0;
  int num_invalid = 0;  // of the served schemas, as the following
  int num_valid = 0;
  int num_valid_inside = 0;
};

void add_suite_group(const Json& group, SuiteCounts& counts) {
  const Result<Automaton> automaton = compile_schema(group["schema"].dump());
  if (!automaton.ok()) {
    EXPECT_EQ(automaton.status().code(), StatusCode::kInvalidArgument);
    ++counts.num_refused;
    return;
  }
  ++counts.num_served;
  for (const Json& test : group["tests"]) {
    const std::string document = test["data"].dump();
    if (test["valid"] == false) {
      ++counts.num_invalid;
      EXPECT_FALSE(matches(*automaton, document)) << document;
    } else {
      ++counts.num_valid;
      counts.num_valid_inside += matches(*automaton, document) ? 1 : 0;
    }
  }
}

// Every invalid document of the suite stays outside, in the spelling that models would use; most
// valid ones are inside, and those outside are what json_schema.h says may be left out. Prints the
// numbers of docs/structured-output.md.
TEST(JsonSchemaTest, TheSuitesInvalidDocumentsAreKeptOut) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/json_schema_suite/tests/draft2020-12");
  std::map<std::string, SuiteCounts> files;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".json") continue;
    std::ifstream stream(file.path());
    for (const Json& group : Json::parse(stream)) {
      SCOPED_TRACE(fmt::format("{}: {}", file.path().filename().string(),
                               group["description"].get<std::string>()));
      add_suite_group(group, files[file.path().stem().string()]);
    }
  }
  SuiteCounts all;
  for (const auto& [name, counts] : files) {
    std::cout << fmt::format("| `{}` | {} of {} | {} of {} | {} |\n", name, counts.num_served,
                             counts.num_served + counts.num_refused, counts.num_valid_inside,
                             counts.num_valid, counts.num_invalid);
    all.num_served += counts.num_served;
    all.num_refused += counts.num_refused;
    all.num_invalid += counts.num_invalid;
    all.num_valid += counts.num_valid;
    all.num_valid_inside += counts.num_valid_inside;
  }
  std::cout << fmt::format(
      "{} schemas served, {} refused; {} invalid documents, {} of {} valid ones inside\n",
      all.num_served, all.num_refused, all.num_invalid, all.num_valid_inside, all.num_valid);
  EXPECT_GT(all.num_served, 100);
  EXPECT_GT(all.num_valid_inside, all.num_valid / 2);
}

}  // namespace
}  // namespace heddle::grammar
