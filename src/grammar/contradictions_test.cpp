// SPDX-License-Identifier: Apache-2.0
#include "grammar/contradictions.h"

#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"
#include "grammar/testing/schema_validator.h"

namespace heddle::grammar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string contradiction_in(const std::string& schema) {
  const Result<Automaton> automaton = compile({.kind = GrammarKind::kJsonSchema, .text = schema});
  EXPECT_FALSE(automaton.ok()) << schema;
  return automaton.ok() ? "" : automaton.status().message();
}

TEST(ContradictionsTest, ErrorsNameThePlaceAndItsKeywords) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"properties": {"age": {"type": "integer", "minimum": 5, "maximum": 3}},
           "required": ["age"]})",
       R"("#/properties/age": minimum 5 and maximum 3 contradict each other)"},
      {R"({"properties": {"o": {"properties": {"s": {"minLength": 4, "maxLength": 3}},
           "required": ["s"]}}, "required": ["o"]})",
       R"("#/properties/o/properties/s": minLength 4 and maxLength 3 contradict each other)"},
      {R"({"items": {"const": "a", "minLength": 2, "title": "x"}, "minItems": 1})",
       R"("#/items": const "a" and minLength 2 contradict)"},
      {R"({"items": {"const": 1, "type": "string"}, "minItems": 1000})",
       R"("#/items": const 1 and type "string" contradict)"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", R"("#": minItems 3 and maxItems 2)"},
      {R"({"items": {"enum": ["a", "b"]}, "uniqueItems": true, "minItems": 3})",
       R"(minItems 3 contradict each other)"},
      {R"({"properties": {"a": {}, "b": false}, "required": ["a", "b"]})",
       R"("#": properties and required "b" contradict each other)"},
      {R"({"propertyNames": {"enum": ["a"]}, "required": ["b"]})", R"(required "b" contradict)"},
      {R"({"$defs": {"small": {"maximum": 3}}, "properties": {"n": {"$ref": "#/$defs/small",
           "type": "integer", "minimum": 5}}, "required": ["n"]})",
       R"("#/properties/n": minimum 5 and maximum 3 (at "#/$defs/small") contradict each other)"},
      {R"({"anyOf": [{"type": "integer", "minimum": 2, "maximum": 1}, false]})",
       R"("#/anyOf/0": minimum 2 and maximum 1 contradict each other)"},
      {R"({"allOf": [{"type": "string"}, {"type": "integer"}]})",
       R"("#/allOf/0": type "string" and type "integer" (at "#/allOf/1") contradict each other)"},
      {R"({"type": "string", "pattern": "^a$", "minLength": 2})",
       R"("#": pattern "^a$" and minLength 2 contradict each other)"},
      {R"({"type": "number", "minimum": 1e19})",
       R"("#": no value satisfies minimum 1e+19 (numbers have at most 18 digits))"},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 0.7})",
       R"(type "integer", minimum 0.5 and maximum 0.7 contradict each other)"},
      {R"({"multipleOf": 7, "minimum": 1, "maximum": 6})",
       R"(multipleOf 7, minimum 1 and maximum 6 contradict each other)"},
      {R"({"properties": {"x": {"not": {}}}, "required": ["x"]})",
       R"("#/properties/x/not": not {} allows no value)"},
      {R"({"items": {"anyOf": [false]}, "minItems": 1})", R"("#/items/anyOf/0": false allows)"},
      {R"({"properties": {"next": {"$ref": "#"}}, "required": ["next"]})",
       R"("#/required": required "next": a value would have to contain another one of its kind)"},
      {R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})", R"("#/minItems")"},
      {R"({"type": "array", "items": {"$ref": "#"}, "minItems": 500})", R"("#/minItems")"},
      {"false", R"("#": false allows no value)"}};
  for (const auto& [schema, message] : kCases) {
    EXPECT_THAT(contradiction_in(schema),
                AllOf(HasSubstr(message), HasSubstr("matches no text at all")))
        << schema;
  }
}

TEST(ContradictionsTest, OnePlaceOfManyIsFoundAndNothingElseIsLeftOut) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (int i = 0; i < 300; ++i) {
    const std::string name = fmt::format("p{}", i);
    schema["properties"][name] = {{"type", "integer"}, {"minimum", 0}, {"maximum", i}};
    schema["required"].push_back(name);
  }
  schema["properties"]["p123"]["minimum"] = 124;
  schema["properties"]["p200"] = false;
  schema["properties"]["p201"] = {{"type", "string"}, {"enum", {1, 2}}};
  const WeakenedSchema weakened = weaken_schema(schema, {}).value();
  EXPECT_EQ(weakened.left_out.size(), 3u);
  Json wanted = schema;
  wanted["properties"]["p123"].erase("maximum");
  wanted["required"].erase(200);
  wanted["properties"]["p201"].erase("type");
  EXPECT_EQ(weakened.schema, wanted);
}

TEST(ContradictionsTest, HundredsAreLeftOutInFewRounds) {
  const struct {
    const char* property;
    const char* kept;
  } kCases[] = {
      {R"({"type": "integer", "minimum": 2, "maximum": 1})",
       R"({"type": "integer", "minimum": 2})"},
      {R"({"enum": ["a"], "$ref": "#/$defs/whole"})",
       R"({"enum": ["a"], "$ref": "#/$defs/whole"})"},
      {R"({"type": "array", "items": {"not": {}}, "minItems": 1})",
       R"({"type": "array", "items": {}, "minItems": 1})"},
      {R"({"properties": {"x": {"const": 1, "type": "null"}}, "required": ["x"]})",
       R"({"properties": {"x": {"const": 1}}, "required": ["x"]})"},
      {R"({"anyOf": [{"allOf": [false]}, {"const": "a", "minLength": 2}]})",
       R"({"anyOf": [{"allOf": [true]}, {"const": "a", "minLength": 2}]})"},
      {R"({"properties": {}, "required": ["x"], "additionalProperties": false})",
       R"({"properties": {}, "additionalProperties": false})"},
      {R"({"type": "object", "properties": {"loop": {"$ref": "#/$defs/loop"}}, "required": ["loop"]})",
       R"({"type": "object", "properties": {"loop": {"$ref": "#/$defs/loop"}}, "required": ["loop"]})"},
  };

  constexpr int kMany = 350;
  Json schema = Json::parse(
      R"({"$defs": {"whole": {"type": "integer"}, "loop": {"properties": {"next": {"$ref":
          "#/$defs/loop"}}, "required": ["next"]}}, "properties": {}, "required": [],
          "additionalProperties": false})");
  Json kept = schema;
  kept["$defs"]["loop"].erase("required");
  kept["$defs"]["whole"].erase("type");
  for (int i = 0; i < kMany; ++i) {
    const std::string name = fmt::format("p{}", i);
    const auto& one = kCases[static_cast<size_t>(i) % std::size(kCases)];
    schema["properties"][name] = Json::parse(one.property);
    kept["properties"][name] = Json::parse(one.kept);
    schema["required"].push_back(name);
    kept["required"].push_back(name);
    schema["required"].push_back("missing " + name);
  }
  int num_checks = 0;
  const CompileCheck check = [&num_checks] {
    ++num_checks;
    return ok_status();
  };
  const WeakenedSchema weakened = weaken_schema(schema, {.check = &check}).value();
  EXPECT_EQ(weakened.schema, kept) << weakened.schema.dump(1).substr(0, 3000);
  // A check a round, and one for each place that was looked at.
  EXPECT_LE(num_checks, 10 * kMany);
}

TEST(ContradictionsTest, OptionalPartsMayContradictThemselves) {
  for (const char* const text :
       {R"({"properties": {"a": {"minimum": 5, "maximum": 3}}})",
        R"({"items": {"minimum": 5, "maximum": 3}})",
        R"({"anyOf": [{"const": 1, "type": "string"}, {"type": "null"}]})"}) {
    const WeakenedSchema weakened = weaken_schema(Json::parse(text), {}).value();
    EXPECT_EQ(weakened.schema, Json::parse(text));
    EXPECT_TRUE(compile({.kind = GrammarKind::kJsonSchema, .text = text}).ok());
  }
}

Json drawn_value(std::mt19937& random) {
  const char* const kValues[] = {"0",     "1",     "3",       "-2",         "2.5",        "true",
                                 "null",  R"("")", R"("a")",  R"("ab")",    R"("abc")",   "[]",
                                 "[1]",   "[1,1]", "[1,2,3]", R"(["a",1])", R"({"k":1})", "{}",
                                 "false", "4",     R"("b")"};
  return Json::parse(kValues[random() % std::size(kValues)]);
}

// Keywords drawn at random: mostly of one type, often at odds with each other, and some that
// cannot be kept to.
Json drawn_schema(std::mt19937& random, int depth) {
  const char* const kTypes[] = {"integer", "number", "string", "array", "boolean", "object"};
  Json schema = {{"type", kTypes[random() % std::size(kTypes)]}};
  const auto add = [&](int one_in, const char* keyword, const Json& value) {
    if (random() % static_cast<uint32_t>(one_in) == 0) schema[keyword] = value;
  };
  const auto number = [&] { return static_cast<int>(random() % 6) - 1; };
  const auto count = [&] { return static_cast<int>(random() % 4); };
  const std::string& type = schema["type"].get_ref<const std::string&>();
  if (type == "integer" || type == "number") {
    add(2, "minimum", number());
    add(2, "exclusiveMaximum", number());
    add(4, "multipleOf", 2);
  } else if (type == "string") {
    add(2, "minLength", count());
    add(2, "maxLength", count());
    add(3, "pattern", random() % 2 == 0 ? "^a" : "b");
  } else if (type == "array") {
    add(2, "minItems", count());
    add(2, "maxItems", count());
    add(3, "uniqueItems", true);
    if (depth > 0) add(2, "items", drawn_schema(random, depth - 1));
  }
  add(8, "enum", Json::array({drawn_value(random), drawn_value(random)}));
  add(8, "const", drawn_value(random));
  add(10, "not", {{"const", drawn_value(random)}});
  if (depth > 0) {
    add(8, "allOf", Json::array({drawn_schema(random, depth - 1)}));
    add(8, "anyOf", Json::array({drawn_schema(random, 0), drawn_schema(random, depth - 1)}));
    add(10, "oneOf", Json::array({drawn_schema(random, 0), drawn_schema(random, 0)}));
  }
  return schema;
}

// Objects have the properties a and b, in this order, if any.
TEST(ContradictionsTest, AWeakenedSchemaCompilesAndKeepsEveryValidDocument) {
  std::mt19937 random(11);
  int num_left_out = 0;
  int num_valid = 0;
  for (int i = 0; i < 500; ++i) {
    Json schema = {{"type", "object"},
                   {"properties", {{"a", drawn_schema(random, 2)}, {"b", drawn_schema(random, 2)}}},
                   {"required", Json::array()},
                   {"additionalProperties", false}};
    for (const char* const name : {"a", "b", "c"}) {
      if (random() % (name[0] == 'c' ? 10 : 2) == 0) schema["required"].push_back(name);
    }
    SCOPED_TRACE(schema.dump());
    const WeakenedSchema weakened = weaken_schema(schema, {}).value();
    ASSERT_FALSE(weakened.schema.is_null());
    num_left_out += static_cast<int>(weakened.left_out.size());
    const Result<Automaton> automaton =
        compile({.kind = GrammarKind::kJsonSchema, .text = weakened.schema.dump()});
    ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
    for (int j = 0; j < 30; ++j) {
      Json document = Json::object();
      if (random() % 4 != 0) document["a"] = drawn_value(random);
      if (random() % 4 != 0) document["b"] = drawn_value(random);
      if (!testing::is_valid(document, schema, schema)) continue;
      ++num_valid;
      EXPECT_TRUE(testing::matches(*automaton, document.dump())) << document;
    }
  }
  EXPECT_GT(num_left_out, 150);
  EXPECT_GT(num_valid, 150);
}

// The search writes each alternative into the automaton once more. These 8,000 properties fill it,
// so that the second copy does not fit: the search ends and reports what it has found.
TEST(ContradictionsTest, LargeAlternativesEndTheSearch) {
  Json huge = {{"properties", Json::object()}};
  for (int i = 0; i < 8000; ++i) huge["properties"][fmt::format("p{}", i)] = Json::object();
  const Json schema = {
      {"$defs", {{"h", huge}}},
      {"properties", {{"a", {{"type", "integer"}, {"minimum", 2}, {"maximum", 1}}}}},
      {"required", {"a"}},
      {"anyOf", {{{"required", {"a"}}}, {{"$ref", "#/$defs/h"}}}}};
  EXPECT_FALSE(compile({.kind = GrammarKind::kJsonSchema, .text = schema.dump()}).ok());
  static_cast<void>(weaken_schema(schema, {}));
}

}  // namespace
}  // namespace heddle::grammar
