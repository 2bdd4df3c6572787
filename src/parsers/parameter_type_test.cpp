// SPDX-License-Identifier: Apache-2.0
#include "parsers/parameter_type.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"
#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"
#include "parsers/json_scanner.h"
#include "support/allocation_count.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;

// The JSON that `text` stands for where the tool's parameter `p` has this schema.
std::string read_as(const char* schema, std::string_view text) {
  const Json tools = {
      {{"function",
        {{"name", "f"},
         {"parameters",
          {{"type", "object"},
           {"properties", {{"p", parse_exact_json(schema).value()}}},
           {"$defs",
            {{"In", {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}}},
             {"Count", {{"minimum", 0}, {"type", "integer"}}},
             {"Again", {{"$ref", "#/$defs/Count"}}},
             {"Loop", {{"$ref", "#/$defs/Loop"}}},
             {"a/b~c d", {{"type", "boolean"}}}}}}}}}}};
  return ParameterType::of(tools, "f", "p").to_json(text);
}

TEST(ParameterTypeTest, EveryKeywordThatStatesATypeCounts) {
  const struct {
    const char* schema;
    const char* text;
    const char* json;
  } kCases[] = {
      {R"({"$ref": "#/$defs/In"})", R"({"a": 1})", R"({"a": 1})"},
      {R"({"$ref": "#/$defs/Again"})", "7", "7"},
      {R"({"$ref": "#/$defs/a~1b~0c%20d"})", "TRUE", "true"},
      {R"({"$ref": "#/$defs/Loop"})", "7", "\"7\""},
      {R"({"$ref": "#/$defs/none"})", "7", "\"7\""},
      {R"({"anyOf": [{"$ref": "#/$defs/In"}, {"type": "null"}]})", R"({"a": 1})", R"({"a": 1})"},
      {R"({"anyOf": [{"$ref": "#/$defs/In"}, {"type": "null"}]})", "null", "null"},
      {R"({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Count"}]})", "3", "3"},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", "three", "\"three\""},
      {R"({"allOf": [{"$ref": "#/$defs/Count"}], "description": "x"})", "5", "5"},
      {R"({"allOf": [{"type": ["integer", "string"]}, {"type": "string"}]})", "5", "\"5\""},
      {R"({"allOf": [{"type": "number"}, {"type": "integer"}]})", "5", "5"},
      {R"({"enum": [1, 2, 3]})", "2", "2"},
      {R"({"type": "integer"})", "123456789012345678901234567890",
       "123456789012345678901234567890"},
      {R"({"type": "number"})", "1e400", "1e400"},
      {R"({"type": "number"})", ".5e400", "0.5e400"},
      {R"({"type": "number"})", "+1.e-400", "1.0e-400"},
      {R"({"type": "number"})", "-00.5E9", "-0.5E9"},
      {R"({"type": "number"})", "1.5e", "\"1.5e\""},
      {R"({"type": "number"})", ".", "\".\""},
      {R"({"type": "integer"})", "1.5e400", "1.5e400"},
      {R"({"type": "integer", "enum": [1.5e400, 5.0]})", "5.0", "5.0"},
      {R"({"type": ["integer", "null"]})", "-2.50e1", "-2.50e1"},
      {R"({"type": "integer"})", "1.5e-400", "\"1.5e-400\""},
      {R"({"type": "integer"})", "2.5", "\"2.5\""},
      {R"({"type": ["integer", "string"]})", "12e5", "\"12e5\""},
      {R"({"type": "array"})", "[-98765432109876543210, 1e400]", "[-98765432109876543210, 1e400]"},
      {R"({"type": "object"})", "{'a': 98765432109876543210}", R"({"a": 98765432109876543210})"},
      {R"({"enum": ["1", "2"]})", "2", "\"2\""},
      {R"({"enum": [1, "two", null]})", "two", "\"two\""},
      {R"({"type": ["string", "integer"], "enum": [1, 2]})", "2", "2"},
      {R"({"enum": ["two", 1, null]})", "1", "1"},
      {R"({"enum": ["two", 1, null]})", "two", "\"two\""},
      {R"({"enum": ["1", 1]})", "1", "\"1\""},
      {R"({"enum": ["auto", true, [1]]})", "True", "true"},
      {R"({"enum": ["auto", true, [1]]})", "[1]", "[1]"},
      {R"({"anyOf": [{"const": "auto"}, {"type": "integer"}]})", "5", "5"},
      {R"({"anyOf": [{"const": "auto"}, {"type": "integer"}]})", "auto", "\"auto\""},
      {R"({"anyOf": [{"enum": ["auto", "7"]}, {"type": "integer"}]})", "7", "\"7\""},
      {R"({"anyOf": [{"const": "auto"}, {"type": "string"}, {"type": "integer"}]})", "5", "\"5\""},
      {R"({"type": ["string", "number"], "enum": ["off", 0.5]})", "0.5", "0.5"},
      {R"({"type": "string", "enum": ["on", "off"]})", "5", "\"5\""},
      {R"({"type": ["integer", "null"]})", "None", "null"},
      {R"({"anyOf": [{"$ref": "#/$defs/Count"}, {"type": "null"}]})", "None", "null"},
      {R"({"type": ["string", "null"]})", "None", "\"None\""},
      {R"({"const": true})", "true", "true"},
      {R"({"const": {"a": 1}})", R"({"a": 1})", R"({"a": 1})"},
      {R"({"type": "integer", "nullable": true})", "4", "4"},
      {R"({"properties": {"a": {}}})", R"({"a": 1})", R"({"a": 1})"},
      {R"({"additionalProperties": {"type": "string"}})", R"({"a": "b"})", R"({"a": "b"})"},
      {R"({"required": ["a"]})", R"({"a": "b"})", R"({"a": "b"})"},
      {R"({"minProperties": 1})", R"({"a": "b"})", R"({"a": "b"})"},
      {R"({"items": {"type": "string"}})", R"(["a"])", R"(["a"])"},
      {R"({"prefixItems": [{}]})", "[1]", "[1]"},
      {R"({"maxItems": 3})", "[1]", "[1]"},
      {R"({"minimum": 3})", "4.5", "4.5"},
      {R"({"multipleOf": 2})", "4", "4"},
      {R"({"maxLength": 3})", "4", "\"4\""},
      {R"({"pattern": "^[0-9]$"})", "4", "\"4\""},
      {R"({"format": "date"})", "[4]", "\"[4]\""},
      {R"({"description": "anything"})", R"({"a": [1]})", R"({"a": [1]})"},
      {R"({})", " [1, 2]\n", "[1, 2]"},
      {R"({})", "[1, 2", "\"[1, 2\""},
      {R"({})", "12", "\"12\""},
      {R"(true)", "{'a': None}", R"({"a": null})"},
      {R"({"type": "any"})", "[]", "[]"},
      {R"({"type": "null"})", "x", "\"x\""},
  };

  for (const auto& [schema, text, json] : kCases) {
    EXPECT_EQ(read_as(schema, text), json) << schema << " of " << text;
  }
}

// Readers of arguments may recurse: a value nests no deeper than JsonScanner reads one.
TEST(ParameterTypeTest, AValueThatNestsTooDeeplyIsAText) {
  constexpr size_t kMost = JsonScanner::kMaxLevels - 1;
  const auto nested = [](std::string_view open, size_t levels, std::string_view close) {
    std::string text;
    for (size_t i = 0; i < levels; ++i) text += open;
    text += R"("[[]{\"[")";
    for (size_t i = 0; i < levels; ++i) text += close;
    return text;
  };
  for (const char* const schema : {"{}", R"({"type": "array"})", R"({"type": "object"})",
                                   R"({"type": ["array", "object"]})", R"({"items": {}})"}) {
    for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"a]\": ", "}")}) {
      const std::string deepest = nested(open, kMost, close);
      EXPECT_EQ(read_as(schema, deepest), deepest) << schema;
      for (const size_t levels : {kMost + 1, size_t{100'000}}) {
        const std::string text = nested(open, levels, close);
        EXPECT_EQ(read_as(schema, text), Json(text).dump()) << schema;
      }
    }
  }
}

TEST(ParameterTypeTest, PropertiesAreFoundWhereverTheToolsSchemaHasThem) {
  const auto given = std::make_shared<const Json>(Json::parse(R"([
    {"function": {"name": "f", "parameters": {"$ref": "#/$defs/Args", "$defs": {"Args": {"properties": {"n": {"type": "integer"}},
        "additionalProperties": {"type": "number"}}}}}},
    {"function": {"name": "g", "parameters": {"allOf": [{"properties": {"n": {"items": {}}}}]}}},
    {"function": {"name": "i", "parameters": {"$id": "https://x.org/i", "$ref": "#args", "$defs": {
      "a": {"$anchor": "args", "properties": {"n": {"$ref": "unit"}, "m": {"$ref": "/unit#kind"}}},
      "u": {"$id": "unit", "type": "boolean", "$defs": {"k": {"$anchor": "kind", "items": {}}}}}}}}
    ])"));
  const std::shared_ptr<const Json> pointed = point_tools(given);
  const Json& tools = *pointed;
  EXPECT_EQ(ParameterType::of(tools, "f", "n").to_json("1"), "1");
  EXPECT_EQ(ParameterType::of(tools, "f", "other").to_json("1.5"), "1.5");
  EXPECT_EQ(ParameterType::of(tools, "g", "n").to_json("[1]"), "[1]");
  EXPECT_EQ(ParameterType::of(tools, "g", "m").to_json("1"), "\"1\"");
  EXPECT_EQ(ParameterType::of(tools, "i", "n").to_json("True"), "true");
  EXPECT_EQ(ParameterType::of(tools, "i", "m").to_json("[1]"), "[1]");
  EXPECT_EQ(ParameterType::of(tools, "h", "m").to_json("{\"a\": 1}"), "{\"a\": 1}");
}

// The work on a request's tools is done once, not for each call: reading parameters copies no
// schema.
TEST(ParameterTypeTest, SchemasArePointedOncePerRequest) {
  const auto plain = std::make_shared<const Json>(Json::parse(
      R"([{"function": {"name": "f", "parameters": {"properties": {"p": {"$ref": "#/n"}}}}},
          {"function": {"name": "g"}}, {"function": 3}, 4])"));
  EXPECT_EQ(point_tools(plain), plain);
  EXPECT_EQ(point_tools(nullptr), nullptr);
  const auto no_list = std::make_shared<const Json>(Json::object());
  EXPECT_EQ(point_tools(no_list), no_list);

  const auto named_tools = [](size_t num_bytes) {
    Json schema = {{"$defs", {{"n", {{"$anchor", "n"}, {"type", "integer"}}}}},
                   {"description", std::string(num_bytes, 'd')},
                   {"properties", {{"q", {{"type", "boolean"}}}}}};
    for (int i = 0; i < 100; ++i) {
      schema["properties"]["p" + std::to_string(i)] = {{"$ref", "#n"}};
    }
    return std::make_shared<const Json>(
        Json::array({{{"function", {{"name", "f"}, {"parameters", schema}}}}}));
  };
  constexpr size_t kBytes = 200000;
  const auto tools = point_tools(named_tools(kBytes));
  const testing::PeakMemory memory;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(ParameterType::of(*tools, "f", "p" + std::to_string(i)).to_json("7"), "7");
  }
  if (testing::PeakMemory::supported()) {
    EXPECT_LT(memory.bytes(), 20000);
  }
  // Beyond the bound names lead nowhere, and all else counts.
  const auto large = point_tools(named_tools(1 << 20));
  EXPECT_EQ(ParameterType::of(*large, "f", "p0").to_json("7"), "\"7\"");
  EXPECT_EQ(ParameterType::of(*large, "f", "q").to_json("true"), "true");
}

std::string arguments_of(const std::string& value, size_t piece_bytes) {
  const auto tools = std::make_shared<Json>(
      Json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"p": {}}}}}])"));
  const auto parser = make_answer_parser(
      {.tool_calls = ToolCallFormat::kQwen3Coder, .tools = tools, .id_seed = "x"});
  const std::string text = "<tool_call>\n<function=f>\n<parameter=p>\n" + value +
                           "\n</parameter>\n</function>\n</tool_call>";
  AnswerDeltas deltas;
  for (size_t i = 0; i < text.size(); i += piece_bytes) {
    parser->push(text.substr(i, piece_bytes), deltas);
  }
  parser->finish(TextEnd::kStopped, deltas);
  AssembledAnswer answer;
  for (AnswerDelta& delta : deltas) answer.add(std::move(delta));
  return answer.calls.size() == 1 ? answer.calls[0].arguments : "";
}

TEST(ParameterTypeTest, AValueThatNoSchemaSpeaksOfShowsItsTypeInItsFirstCharacter) {
  for (const size_t piece_bytes : {1U, 3U, 1000U}) {
    EXPECT_EQ(arguments_of(R"({"a": [1, 2]})", piece_bytes), R"({"p": {"a": [1, 2]}})");
    EXPECT_EQ(arguments_of("\n [1]", piece_bytes), R"({"p": [1]})");
    EXPECT_EQ(arguments_of("{a", piece_bytes), R"({"p": "{a"})");
    EXPECT_EQ(arguments_of("text {", piece_bytes), R"({"p": "text {"})");
    EXPECT_EQ(arguments_of("", piece_bytes), R"({"p": ""})");
    EXPECT_EQ(arguments_of("null", piece_bytes), R"({"p": null})");
  }
}

}  // namespace
}  // namespace heddle::parsers
