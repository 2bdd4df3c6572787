// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_references.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "grammar/testing/mask_fixture.h"
#include "support/allocation_count.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

TEST(SchemaReferencesTest, NamesBecomePointers) {
  const struct {
    const char* schema;
    const char* pointed;
  } kCases[] = {
      {R"({"$ref": "#n", "$defs": {"a/b": {"$anchor": "n", "type": "null"}}})",
       R"({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$anchor": "n", "type": "null"}}})"},
      {R"({"$id": "https://x.org/s/root", "items": {"$ref": "https://x.org/s/item"},
           "$defs": {"i": {"$id": "item", "allOf": [{"$ref": "#/$defs/j"}, {"$ref": "root#"}],
                           "$defs": {"j": {"$ref": "#"}}}}})",
       R"({"items": {"$ref": "#/$defs/i"},
           "$defs": {"i": {"allOf": [{"$ref": "#/$defs/i/$defs/j"}, {"$ref": "#"}],
                           "$defs": {"j": {"$ref": "#/$defs/i"}}}}})"},
      // Relative to the nearest "$id", by the rules of URIs.
      {R"({"$id": "http://x.org/a/b/c?q", "anyOf": [{"$ref": "../d"}, {"$ref": "/a/d"},
           {"$ref": "//x.org/a/d"}, {"$ref": "./../d#"}, {"$ref": "d"}, {"$ref": "?q"},
           {"$ref": "../d#/type"}], "$defs": {"d": {"$id": "http://x.org/a/d", "type": "null"}}})",
       R"({"anyOf": [{"$ref": "#/$defs/d"}, {"$ref": "#/$defs/d"}, {"$ref": "#/$defs/d"},
           {"$ref": "#/$defs/d"}, {"$ref": "d"}, {"$ref": "#"}, {"$ref": "#/$defs/d/type"}],
           "$defs": {"d": {"type": "null"}}})"},
      {R"({"$id": "urn:uuid:1", "items": {"$ref": "urn:uuid:1#n"}, "not": {"$ref": "urn:uuid:2"},
           "$defs": {"n": {"$anchor": "n"}}})",
       R"({"items": {"$ref": "#/$defs/n"}, "not": {"$ref": "urn:uuid:2"},
           "$defs": {"n": {"$anchor": "n"}}})"},
      // An anchor belongs to the "$id" around it.
      {R"({"$ref": "part#n", "items": {"$ref": "#n"},
           "$defs": {"p": {"$id": "part", "$defs": {"n": {"$anchor": "n"}}},
                     "n": {"$anchor": "n", "type": "null"}}})",
       R"({"$ref": "#/$defs/p/$defs/n", "items": {"$ref": "#/$defs/n"},
           "$defs": {"p": {"$defs": {"n": {"$anchor": "n"}}},
                     "n": {"$anchor": "n", "type": "null"}}})"},
      // The spelling of drafts 6 and 7.
      {R"({"$ref": "#n", "definitions": {"a": {"$id": "#n", "type": "null"}}})",
       R"({"$ref": "#/definitions/a", "definitions": {"a": {"type": "null"}}})"},
      // One part has the dynamic anchor: the way there decides nothing.
      {R"({"items": {"$dynamicRef": "#n", "type": "null"}, "$defs": {"a": {"$dynamicAnchor": "n"}}})",
       R"({"items": {"type": "null", "$ref": "#/$defs/a"}, "$defs": {"a": {"$dynamicAnchor": "n"}}})"},
      {R"({"items": {"$dynamicRef": "#/$defs/a", "$ref": "#"},
           "$defs": {"a": {"$dynamicAnchor": "n"}, "b": {"$dynamicAnchor": "n"}}})",
       R"({"items": {"$ref": "#", "allOf": [{"$ref": "#/$defs/a"}]},
           "$defs": {"a": {"$dynamicAnchor": "n"}, "b": {"$dynamicAnchor": "n"}}})"},
      {R"({"items": {"$recursiveRef": "#"}, "$recursiveAnchor": true})",
       R"({"items": {"$ref": "#"}, "$recursiveAnchor": true})"},
      // Documents and names are no references.
      {R"({"$ref": "#n", "enum": [{"$ref": "#n", "$id": "x"}], "default": {"$anchor": "n"},
           "properties": {"$id": {"type": "null"}, "$ref": {"$anchor": "n"}}})",
       R"({"$ref": "#/properties/$ref", "enum": [{"$ref": "#n", "$id": "x"}],
           "default": {"$anchor": "n"},
           "properties": {"$id": {"type": "null"}, "$ref": {"$anchor": "n"}}})"},
      // Below a name that no draft knows.
      {R"({"items": {"$ref": "#m"}, "extra": {"b": {"$anchor": "m", "$dynamicAnchor": "m"}}})",
       R"({"items": {"$ref": "#/extra/b"},
           "extra": {"b": {"$anchor": "m", "$dynamicAnchor": "m"}}})"},
  };

  for (const auto& [text, pointed] : kCases) {
    const Json schema = Json::parse(text);
    const std::optional<Json> result = point_references(schema).value();
    ASSERT_TRUE(result) << text;
    EXPECT_EQ(*result, Json::parse(pointed)) << text << *result;
  }
  const Json plain =
      Json::parse(R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}, "b": {"$anchor": "b"}}})");
  EXPECT_FALSE(point_references(plain).value());
}

TEST(SchemaReferencesTest, ReferencesToNoPartAreRefusedByName) {
  const struct {
    const char* schema;
    const char* message;  // nullptr: it is served
  } kCases[] = {
      {R"({"$ref": "#nowhere"})", R"(at "#/$ref": "#nowhere" names no part of the schema)"},
      {R"({"properties": {"a": {"$ref": "https://x.org/other.json"}}})",
       R"(at "#/properties/a/$ref": "https://x.org/other.json" names no part)"},
      {R"({"$id": "https://x.org/s", "items": {"$ref": "item#/$defs/n"}})",
       R"(at "#/items/$ref": "item#/$defs/n" names no part)"},
      {R"({"items": {"$dynamicRef": "#n"}})", R"(at "#/items/$ref": "#n" names no part)"},
      {R"({"$defs": {"p": {"$id": "part", "$ref": "#/$defs/n"}, "n": {}}, "$ref": "part"})",
       R"(at "#/$defs/p/$ref": "#/$defs/p/$defs/n" does not exist)"},
      // Two parts of one name.
      {R"({"$ref": "#n", "$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}})",
       R"(at "#/$ref": "#n" names no part of the schema: no $id or $anchor is called so, or several)"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "x", "$ref": "#/n"}, "b": {"$id": "x"}}})",
       R"(at "#/$defs/a/$ref": "x#/n" names no part)"},
      // A dynamic anchor that two resources have.
      {R"({"$ref": "list", "$defs": {"a": {"$dynamicAnchor": "n"}, "l": {"$id": "list",
           "items": {"$dynamicRef": "#n"}, "$defs": {"b": {"$dynamicAnchor": "n"}}}}})",
       R"(at "#/$defs/l/items/$dynamicRef": the keyword "$dynamicRef" is not supported)"},
      // Nothing leads there.
      {R"({"type": "null", "$defs": {"a": {"$ref": "#nowhere"}}})", nullptr},
  };

  for (const auto& [schema, message] : kCases) {
    const Result<Automaton> automaton = compile({.kind = GrammarKind::kJsonSchema, .text = schema});
    EXPECT_EQ(automaton.ok(), message == nullptr) << schema;
    if (message != nullptr && !automaton.ok()) {
      EXPECT_THAT(automaton.status().message(), HasSubstr(message));
    }
  }
}

// Written out, each of these would have gigabytes.
TEST(SchemaReferencesTest, ReferencesAreWrittenOutToABound) {
  const auto references = [](const std::string& to, size_t count) {
    Json list = Json::array();
    for (size_t i = 0; i < count; ++i) list.push_back({{"$ref", to}});
    return list;
  };
  const std::string long_name(100000, 'n');
  Json anchors;
  for (size_t i = 0; i < 5000; ++i) {
    anchors[std::to_string(i)] = {{"$anchor", "a" + std::to_string(i)}};
  }
  Json targets = Json::array();
  for (size_t i = 0; i < 100; ++i) targets.push_back({{"$ref", "#a" + std::to_string(i)}});
  Json ids = Json::array();
  for (size_t i = 0; i < 5000; ++i) ids.push_back({{"$id", std::to_string(i)}});
  const std::string folder = "https://x.org/" + std::string(2000, 'f') + "/";

  const struct {
    Json schema;
    const char* message;  // nullptr: it is served
  } kCases[] = {
      {{{"$id", long_name}, {"allOf", references("a", 9000)}}, "has 100000 bytes; at most 2048"},
      {{{"$id", "a"}, {"$ref", long_name}}, "has 100000 bytes; at most 2048"},
      {{{"$id", folder}, {"$ref", std::string(100, 'n')}}, "bytes; at most 2048"},
      {{{"$id", folder}, {"allOf", references("a", 9000)}}, nullptr},
      {{{"$defs", {{long_name, {{"$anchor", "a"}}}}}, {"allOf", references("#a", 9000)}},
       "more than 1048576 bytes"},
      {{{"$defs", {{long_name, {{"$id", "a"}}}}}, {"allOf", references("a#/b", 9000)}},
       "more than 1048576 bytes"},
      {{{"$defs", {{long_name, {{"properties", anchors}}}}}, {"allOf", targets}},
       "more than 1048576 bytes"},
      {{{"$defs", {{long_name, {{"properties", anchors}}}}}, {"$ref", "#a9"}}, nullptr},
      {{{"$id", folder}, {"allOf", ids}}, "more than 1048576 bytes"},
      {{{"$id", "a"}, {"description", std::string(kMaxSchemaBytes, 'd')}},
       "bytes or more; at most 262144"},
      {{{"$id", "a"}, {"allOf", references("#", 60000)}}, "bytes or more; at most 262144"},
  };

  for (const auto& [schema, message] : kCases) {
    const std::string begin = schema.dump().substr(0, 60);
    const heddle::testing::PeakMemory memory;
    const Result<std::optional<Json>> pointed = point_references(schema);
    if (heddle::testing::PeakMemory::supported()) {
      EXPECT_LT(memory.bytes(), 16 << 20) << begin;
    }
    EXPECT_EQ(pointed.ok(), message == nullptr) << begin;
    if (message == nullptr || pointed.ok()) continue;
    EXPECT_THAT(pointed.status().message(), HasSubstr(message)) << begin;
    EXPECT_LT(pointed.status().message().size(), 300U) << begin;
  }
  const Json percents = {{"$ref", "#a"},
                         {"$defs", {{std::string(50000, '%'), {{"$anchor", "a"}}}}}};
  const Json pointed = *point_references(percents).value();
  EXPECT_EQ(pointed["$ref"].get_ref<const std::string&>().size(), 8U + 150000U);
  EXPECT_NE(part_at(pointed, pointed["$ref"].get_ref<const std::string&>()), nullptr);
}

// Many of a name, and many references to them: each one keeps or gets what it says alone.
TEST(SchemaReferencesTest, ManyDynamicReferencesAreRewritten) {
  Json schema = {{"allOf", Json::array()}, {"$defs", Json::object()}};
  constexpr size_t kMany = 2000;
  for (size_t i = 0; i < kMany; ++i) {
    schema["allOf"].push_back({{"$dynamicRef", i % 2 == 0 ? "#one" : "#many"}});
    schema["$defs"][std::to_string(i)] = {{"$id", std::to_string(i)}, {"$dynamicAnchor", "many"}};
  }
  schema["$defs"]["one"] = {{"$dynamicAnchor", "one"}};
  schema["$dynamicAnchor"] = "many";
  const Json pointed = *point_references(schema).value();
  for (size_t i = 0; i < kMany; ++i) {
    const Json expected =
        i % 2 == 0 ? Json{{"$ref", "#/$defs/one"}} : Json{{"$dynamicRef", "#many"}};
    ASSERT_EQ(pointed["allOf"][i], expected) << i;
  }
}

TEST(SchemaReferencesTest, EmbeddedSchemasAreKeptTo) {
  const Result<Automaton> automaton = compile({.kind = GrammarKind::kJsonSchema, .text = R"({
      "$id": "https://example.com/order", "type": "object",
      "properties": {"item": {"$ref": "https://example.com/schemas/item"},
                     "next": {"$ref": "#order"}, "unit": {"$ref": "schemas/item#unit"}},
      "required": ["item"], "$anchor": "order", "additionalProperties": false,
      "$defs": {"item": {"$id": "schemas/item", "type": "array",
                         "items": {"anyOf": [{"$ref": "#unit"}, {"$ref": "#/$defs/count"}]},
                         "$defs": {"unit": {"$anchor": "unit", "enum": ["g", "l"]},
                                   "count": {"type": "integer"}}}}})"});
  ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
  for (const char* const valid :
       {R"({"item":["g",3]})", R"({"item":[],"next":{"item":["l"]},"unit":"g"})"}) {
    EXPECT_TRUE(testing::matches(*automaton, valid)) << valid;
  }
  for (const char* const invalid :
       {R"({"item":["x"]})", R"({"item":[],"unit":3})", R"({"item":[],"next":{}})"}) {
    EXPECT_FALSE(testing::matches(*automaton, invalid)) << invalid;
  }
}

}  // namespace
}  // namespace heddle::grammar
