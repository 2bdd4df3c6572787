// SPDX-License-Identifier: Apache-2.0
// Forced calls in the formats that do not write arguments as JSON between texts: Python's, and
// messages on channels, whose marks are special tokens.
#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "grammar/grammar.h"
#include "grammar/testing/mask_fixture.h"
#include "grammar/testing/schema_validator.h"
#include "parsers/answer_parser.h"
#include "parsers/call_form.h"
#include "server/server_fixture.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"

namespace heddle::server {
namespace {

using parsers::ToolCallFormat;
using ::testing::HasSubstr;

Json weather_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters":
    {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"},
     "days": {"type": ["integer", "null"]}, "units": {"enum": ["C", "F"]}}}}},
    {"type": "function", "function": {"name": "now", "strict": true}}])");
}

class ForcedCallsTest : public ServerTest {
 protected:
  void start_with(ToolCallFormat format) {
    options.tool_call_format = format;
    if (format == ToolCallFormat::kHarmony) {
      options.reasoning_format = parsers::ReasoningFormat::kHarmony;
    }
    start();
  }

  // The model says `text`, in pieces of three bytes and more, of whole characters.
  void say(std::string_view text) const {
    std::vector<std::string> pieces;
    while (!text.empty()) {
      size_t size = std::min<size_t>(3, text.size());
      while (size < text.size() && (static_cast<uint8_t>(text[size]) & 0xC0) == 0x80) ++size;
      pieces.emplace_back(text.substr(0, size));
      text.remove_prefix(size);
    }
    engine->script = [pieces](const Request&) { return answer_events(pieces); };
  }

  // Whether the last request lets `text` be a whole answer, and nothing follow it.
  [[nodiscard]] bool ends_at(std::string_view text) const {
    const auto form = form_after(text);
    return form != nullptr && form->is_over();
  }

  [[nodiscard]] Reply ask(const Json& fields) const {
    return post("/v1/chat/completions", chat_body(fields));
  }

  // The calls of an answer, as (name, arguments), of a stream and of a whole one alike.
  [[nodiscard]] std::vector<std::pair<std::string, Json>> calls(Json fields) const {
    const Reply reply = ask(fields);
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<std::pair<std::string, Json>> whole;
    const Json choice = reply.json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(choice["message"]["content"].is_null());
    for (const Json& call : choice["message"]["tool_calls"]) {
      whole.emplace_back(call["function"]["name"],
                         Json::parse(call["function"]["arguments"].get<std::string>()));
    }
    fields["stream"] = true;
    std::vector<std::pair<std::string, std::string>> streamed;
    std::string reasoning;
    for (const std::string& event : ask(fields).events()) {
      if (event == "[DONE]") continue;
      const Json delta = Json::parse(event)["choices"][0]["delta"];
      EXPECT_EQ(delta.value("content", Json("")), "");
      reasoning += delta.value("reasoning_content", "");
      for (const Json& part : delta.value("tool_calls", Json::array())) {
        const auto index = part["index"].get<size_t>();
        if (index == streamed.size()) streamed.emplace_back(part["function"]["name"], "");
        streamed[index].second += part["function"]["arguments"].get<std::string>();
      }
    }
    const Json& thought = choice["message"]["reasoning_content"];
    EXPECT_EQ(reasoning, thought.is_null() ? "" : thought.get<std::string>());
    EXPECT_EQ(streamed.size(), whole.size());
    for (size_t i = 0; i < std::min(whole.size(), streamed.size()); ++i) {
      EXPECT_EQ(streamed[i].first, whole[i].first);
      EXPECT_EQ(Json::parse(streamed[i].second, nullptr, false), whole[i].second);
    }
    return whole;
  }
};

TEST_F(ForcedCallsTest, PythonsCallsAreAListWithLiterals) {
  start_with(ToolCallFormat::kPythonic);
  const std::string text = R"([weather(city="Par\"is, \u00e9", days=None), now()])";
  say(text);
  const auto made = calls({{"tools", weather_tools()}, {"tool_choice", "required"}});
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].first, "weather");
  EXPECT_EQ(made[0].second, Json({{"city", "Par\"is, é"}, {"days", nullptr}}));
  EXPECT_EQ(made[1].first, "now");
  EXPECT_EQ(made[1].second, Json::object());
  EXPECT_TRUE(ends_at(text));
  EXPECT_TRUE(ends_at("[now()]"));
  EXPECT_TRUE(ends_at(R"([weather(city="", days=3, units="F")])"));
  for (const char* const other :
       {"", "[]", "now()", "[now(a=1)]", "[now(), ]", "[weather()]", "[weather(city='x')]",
        R"([weather(city="x", units="K")])", R"([weather(city="x", days=null)])",
        R"([weather(city="x", days="3")])", "[later()]", "Well. [now()]"}) {
    EXPECT_FALSE(allows(other)) << other;
  }
  EXPECT_EQ(
      ask({{"tools", weather_tools()}, {"tool_choice", "required"}, {"parallel_tool_calls", false}})
          .status,
      200);
  EXPECT_TRUE(ends_at("[now()]"));
  EXPECT_FALSE(allows("[now(), now()]"));
  const Json named = {{"type", "function"}, {"function", {{"name", "now"}}}};
  EXPECT_EQ(ask({{"tools", weather_tools()}, {"tool_choice", named}}).status, 200);
  EXPECT_TRUE(ends_at("[now()]"));
  EXPECT_FALSE(allows(R"([weather(city="x")])"));
}

TEST_F(ForcedCallsTest, WithoutAFormatACallIsJsonInEveryApi) {
  start_with(ToolCallFormat::kNone);
  say(R"({"name": "weather", "arguments": {"city": "Oslo"}})");
  const auto made = calls({{"tools", weather_tools()}, {"tool_choice", "required"}});
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].first, "weather");
  EXPECT_EQ(made[0].second, Json({{"city", "Oslo"}}));
  EXPECT_TRUE(ends_at(R"({"name": "now", "arguments": {}})"));

  const Json tool = weather_tools()[0]["function"];
  const Json messages =
      post("/v1/messages",
           {{"model", "m"},
            {"max_tokens", 100},
            {"messages", {{{"role", "user"}, {"content", "?"}}}},
            {"tools", {{{"name", "weather"}, {"input_schema", tool["parameters"]}}}},
            {"tool_choice", {{"type", "any"}}}})
          .json();
  ASSERT_EQ(messages["content"].size(), 1u) << messages;
  EXPECT_EQ(messages["content"][0]["type"], "tool_use");
  EXPECT_EQ(messages["content"][0]["input"], Json({{"city", "Oslo"}}));
  EXPECT_TRUE(ends_at(R"({"name": "weather", "arguments": {"city": ""}})"));

  const Json responses =
      post("/v1/responses",
           {{"model", "m"},
            {"input", "?"},
            {"tools",
             {{{"type", "function"}, {"name", "weather"}, {"parameters", tool["parameters"]}}}},
            {"tool_choice", "required"}})
          .json();
  ASSERT_EQ(responses["output"].size(), 1u) << responses;
  EXPECT_EQ(responses["output"][0]["type"], "function_call");
  EXPECT_EQ(responses["output"][0]["name"], "weather");
}

TEST_F(ForcedCallsTest, ACallThatIsCutLeavesNoPartOfItAsText) {
  const std::pair<ToolCallFormat, const char*> kCut[] = {
      {ToolCallFormat::kNone, R"({"name": "weather", "argu)"},
      {ToolCallFormat::kQwen, "<tool_call>\n{\"name\": \"weather\", \"argu"},
      {ToolCallFormat::kQwen, "<tool"},
      {ToolCallFormat::kQwen3Coder, "<tool_call>\n<function=weather>\n<parameter=ci"},
      {ToolCallFormat::kDeepseekV3, "<｜tool▁calls▁begin｜><｜tool▁call"},
      {ToolCallFormat::kMistral, "[TOOL_CALLS][{\"name\""},
      {ToolCallFormat::kPythonic, "[weather(ci"},
      {ToolCallFormat::kGemma4, "<|tool_call>call:weath"},
      {ToolCallFormat::kMinimaxM2, "<minimax:tool_call>\n<invoke name=\"weather\">\n<param"},
      {ToolCallFormat::kSeedOss, "<seed:tool_call>\n<function=weather>\n<parameter=ci"},
      {ToolCallFormat::kLfm2, "<|tool_call_start|>[weather(ci"},
      {ToolCallFormat::kGranite, "<|tool_call|>[{\"name\""},
      {ToolCallFormat::kNemotronV2, "<TOOLCALL>[{\"name\": \"weather\", \"argu"},
      {ToolCallFormat::kCohere, "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_n"}};
  for (const auto& [format, text] : kCut) {
    SCOPED_TRACE(text);
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    start_with(format);
    std::vector<RequestEvent> events = answer_events({text});
    events.back().finish->reason = FinishReason::kLength;
    engine->script = [events](const Request&) { return events; };
    Json fields = {{"tools", weather_tools()}, {"tool_choice", "required"}};
    const Json choice = ask(fields).json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_EQ(choice["message"]["content"], "") << choice;
    fields["stream"] = true;
    for (const std::string& event : ask(fields).events()) {
      if (event == "[DONE]") continue;
      EXPECT_EQ(Json::parse(event)["choices"][0]["delta"].value("content", Json("")), "");
    }
    server.reset();
  }
}

// They would cut a call short, whose arguments may hold them.
TEST_F(ForcedCallsTest, StopTextsDoNotApplyToAForcedCall) {
  start_with(ToolCallFormat::kQwen3Coder);
  const Json tools = weather_tools();
  const Json schema = tools[0]["function"]["parameters"];
  const Json message = {{"role", "user"}, {"content", "Hi"}};
  const Json stops = {"\n", "</function>"};
  const auto is_cleared = [this] {
    const StopConditions stop = engine->submitted().back().stop;
    return stop.texts.empty() && stop.patterns.empty();
  };
  const Json named = {{"type", "function"}, {"function", {{"name", "now"}}}};
  for (const Json& choice : {Json("required"), named}) {
    const Reply reply = ask({{"tools", tools},
                             {"tool_choice", choice},
                             {"stop", stops},
                             {"stop_regex", {"a+"}},
                             {"stop_token_ids", {7}}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_TRUE(is_cleared());
    EXPECT_EQ(engine->submitted().back().stop.token_ids, std::vector<TokenId>{7});
  }
  EXPECT_EQ(ask({{"tools", tools}, {"tool_choice", "auto"}, {"stop", stops}}).status, 200);
  EXPECT_FALSE(is_cleared());
  EXPECT_EQ(ask({{"regex", "a*"}, {"stop", stops}}).status, 200);
  EXPECT_FALSE(is_cleared());

  Json messages = {{"model", "m"},
                   {"max_tokens", 9},
                   {"messages", {message}},
                   {"stop_sequences", stops},
                   {"tools", {{{"name", "weather"}, {"input_schema", schema}}}},
                   {"tool_choice", {{"type", "any"}}}};
  EXPECT_EQ(post("/v1/messages", messages).status, 200);
  EXPECT_TRUE(is_cleared());
  Json responses = {
      {"input", "Hi"},
      {"stop", stops},
      {"tools", {{{"type", "function"}, {"name", "weather"}, {"parameters", schema}}}},
      {"tool_choice", "required"}};
  EXPECT_EQ(post("/v1/responses", responses).status, 200);
  EXPECT_TRUE(is_cleared());

  // Too many of them are an error all the same, in the words of each API.
  Json many = Json::array();
  for (int i = 0; i < 17; ++i) many.push_back(fmt::format("s{}", i));
  const Reply reply = ask({{"tools", tools}, {"tool_choice", "required"}, {"stop", many}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["param"], "stop");
  messages["stop_sequences"] = many;
  const Reply refused = post("/v1/messages", messages);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("stop_sequences"));
  EXPECT_EQ(ask({{"tools", tools}, {"tool_choice", "required"}, {"stop_regex", {"(?=a)"}}}).status,
            400);
}

TEST_F(ForcedCallsTest, AContradictionIsLeftOutAloneOrNamed) {
  for (const ToolCallFormat format : {ToolCallFormat::kQwen, ToolCallFormat::kPythonic,
                                      ToolCallFormat::kQwen3Coder, ToolCallFormat::kHarmony}) {
    SCOPED_TRACE(parsers::to_string(format));
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    start_with(format);
    Json tool = Json::parse(R"({"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "required": ["age", "n"], "properties": {
          "age": {"type": "integer", "minimum": 5, "maximum": 3},
          "n": {"type": "integer", "minimum": 1}, "never": {"type": "integer", "not": {}}}}}})");
    const auto call = [&](int age, int n) {
      switch (format) {
        case ToolCallFormat::kQwen:
          return fmt::format(
              "<tool_call>\n{{\"name\": \"f\", \"arguments\": "
              "{{\"age\":{},\"n\":{}}}}}\n</tool_call>",
              age, n);
        case ToolCallFormat::kPythonic:
          return fmt::format("[f(age={}, n={})]", age, n);
        case ToolCallFormat::kHarmony:
          return fmt::format(
              "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
              "{{\"age\":{},\"n\":{}}}",
              age, n);
        default:
          return fmt::format(
              "<tool_call>\n<function=f>\n<parameter=age>\n{}\n</parameter>\n"
              "<parameter=n>\n{}\n</parameter>\n</function>\n</tool_call>",
              age, n);
      }
    };
    EXPECT_EQ(ask({{"tools", {tool}}, {"tool_choice", "required"}}).status, 200);
    EXPECT_TRUE(allows(call(5, 1)));
    EXPECT_FALSE(allows(call(5, 0))) << "all else is kept to";
    EXPECT_FALSE(allows(call(4, 1))) << "minimum is still there";
    tool["function"]["strict"] = true;
    const Reply refused = ask({{"tools", {tool}}, {"tool_choice", "required"}});
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(error_of(refused)["code"], "invalid_tool");
    EXPECT_THAT(error_of(refused)["message"].get<std::string>(),
                HasSubstr("\"#/properties/age\": minimum 5 and maximum 3 contradict"));
    // A property that may be left out need not be possible.
    tool["function"]["parameters"]["properties"]["age"]["maximum"] = 5;
    EXPECT_EQ(ask({{"tools", {tool}}, {"tool_choice", "required"}}).status, 200);
    EXPECT_TRUE(allows(call(5, 1)));
    server.reset();
  }
}

TEST_F(ForcedCallsTest, OnlyKeywordsThatCannotBeEnforcedAreLeftOut) {
  start_with(ToolCallFormat::kQwen);
  const Json parameters = Json::parse(R"({"type": "object", "required": ["script", "ids"],
      "propertyOrdering": ["script"], "properties": {
        "script": {"type": "string", "maxLength": 524288},
        "ids": {"type": "array", "uniqueItems": true, "items": {"type": "integer"}},
        "mode": {"anyOf": [{"const": "fast"}, {"not": {}}]}}, "additionalProperties": false})");
  Json tool = {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}};
  const auto call = [](const char* arguments) {
    return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + std::string(arguments) +
           "}\n</tool_call>";
  };
  EXPECT_EQ(ask({{"tools", {tool}}, {"tool_choice", "required"}}).status, 200);
  EXPECT_TRUE(allows(call(R"({"script":"x","ids":[1,1],"mode":"fast"})")));
  EXPECT_FALSE(allows(call(R"({"script":"x"})")));
  EXPECT_FALSE(allows(call(R"({"script":"x","ids":["1"]})")));
  EXPECT_FALSE(allows(call(R"({"script":"x","ids":[],"mode":"slow"})")));
  tool["function"]["strict"] = true;
  const Reply refused = ask({{"tools", {tool}}, {"tool_choice", "required"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(error_of(refused)["code"], "invalid_tool");
  EXPECT_THAT(error_of(refused)["message"].get<std::string>(), HasSubstr("uniqueItems"));
}

TEST_F(ForcedCallsTest, ArgumentsBetweenTagsHaveTheTypesThatTheParserReads) {
  start_with(ToolCallFormat::kQwen3Coder);
  const Json parameters = Json::parse(R"({"type": "object", "required": ["in"],
      "$defs": {"In": {"type": "object", "properties": {"a": {"type": "integer"}},
                       "required": ["a"], "additionalProperties": false}},
      "properties": {"in": {"$ref": "#/$defs/In"},
        "maybe": {"anyOf": [{"$ref": "#/$defs/In"}, {"type": "null"}]},
        "level": {"enum": [1, 2, "high"]},
        "either": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]}}})");
  const Json tools = {
      {{"type", "function"},
       {"function", {{"name", "f"}, {"strict", true}, {"parameters", parameters}}}}};
  const auto call = [](const std::string& name, const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=in>\n{\"a\":1}\n</parameter>\n<parameter=" +
           name + ">\n" + value + "\n</parameter>\n</function>\n</tool_call>";
  };
  for (const auto& [name, value, json] :
       std::initializer_list<std::tuple<const char*, const char*, Json>>{
           {"maybe", R"({"a": 2})", {{"a", 2}}},
           {"maybe", "null", nullptr},
           {"level", "2", 2},
           {"level", "high", "high"},
           {"either", "[1, 2]", {1, 2}},
           {"either", "some text", "some text"}}) {
    SCOPED_TRACE(value);
    say(call(name, value));
    const auto made = calls({{"tools", tools}, {"tool_choice", "required"}});
    ASSERT_EQ(made.size(), 1u);
    EXPECT_EQ(made[0].second, Json({{"in", {{"a", 1}}}, {name, json}}));
    EXPECT_TRUE(allows(call(name, value)));
  }
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"maybe", "text"}, {"maybe", R"({"a":"x"})"}, {"level", "3"}, {"either", R"(["x"])"}}) {
    EXPECT_FALSE(allows(call(name, value))) << value;
  }
  Json refused = tools;
  refused[0]["function"]["parameters"]["properties"]["either"]["not"] = {{"const", "x"}};
  const Reply reply = ask({{"tools", refused}, {"tool_choice", "required"}});
  EXPECT_EQ(reply.status, 400) << "a text between tags is checked, too";
  EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr("not"));
}

// If a value may be any text, the parser reads the characters between the tags as a text. If all
// values are listed, it reads a listed 1 as a number.
TEST_F(ForcedCallsTest, ListedTextsBetweenTagsAreKeptToWhereverTheyAreListed) {
  const Json parameters = Json::parse(R"({"type": "object", "$defs": {
      "unit": {"type": "string", "enum": ["C", "F"]}, "also": {"$ref": "#/$defs/unit"}},
      "properties": {
        "a": {"$ref": "#/$defs/unit"}, "b": {"allOf": [{"$ref": "#/$defs/also"}, {"title": "B"}]},
        "c": {"anyOf": [{"const": "x"}, {"const": "y"}]},
        "d": {"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}], "default": null},
        "e": {"enum": ["ab", "abc", "b"], "minLength": 2, "pattern": "b$"},
        "f": {"allOf": [{"const": "z"}], "type": "string"},
        "g": {"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]},
        "h": {"oneOf": [{"enum": ["a"]}, {"enum": ["b", 1]}]},
        "i": {"type": ["string", "boolean"], "enum": ["on", true]},
        "j": {"$ref": "#/properties/a"},
        "k": {"anyOf": [{"enum": ["a"]}, {"type": "string"}]}}})");
  const std::tuple<const char*, std::vector<const char*>, std::vector<const char*>> kCases[] = {
      {"a", {"C", "F"}, {"K", "", "CF"}},
      {"b", {"F"}, {"K"}},
      {"c", {"x", "y"}, {"z", "xy"}},
      {"d", {"C", "null"}, {"K"}},
      {"e", {"ab"}, {"abc", "b"}},
      {"f", {"z"}, {"y"}},
      {"g", {"b"}, {"a", "c"}},
      {"h", {"a", "b", "1"}, {"c", "2"}},
      {"i", {"on", "true"}, {"off", "false"}},
      {"j", {"C"}, {"K"}},
      {"k", {"a", "any text"}, {}}};
  for (const ToolCallFormat format :
       {ToolCallFormat::kQwen3Coder, ToolCallFormat::kGlm, ToolCallFormat::kDeepseekV32}) {
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    start_with(format);
    const auto call = [format](const std::string& name, const std::string& value) {
      switch (format) {
        case ToolCallFormat::kQwen3Coder:
          return "<tool_call>\n<function=f>\n<parameter=" + name + ">\n" + value +
                 "\n</parameter>\n</function>\n</tool_call>";
        case ToolCallFormat::kGlm:
          return "<tool_call>f\n<arg_key>" + name + "</arg_key>\n<arg_value>" + value +
                 "</arg_value>\n</tool_call>";
        default: {
          const bool is_text = value != "1" && value != "true" && value != "null";
          return "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
                 "name=\"" +
                 name + "\" string=\"" + (is_text ? "true" : "false") + "\">" + value +
                 "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
        }
      }
    };
    for (const bool is_strict : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", parsers::to_string(format), is_strict));
      const Json function = {{"name", "f"}, {"strict", is_strict}, {"parameters", parameters}};
      const Json tools = {{{"type", "function"}, {"function", function}}};
      const Reply reply = ask({{"tools", tools}, {"tool_choice", "required"}});
      ASSERT_EQ(reply.status, 200) << reply.body;
      for (const auto& [name, valid, invalid] : kCases) {
        for (const char* const value : valid) EXPECT_TRUE(allows(call(name, value))) << value;
        for (const char* const value : invalid) EXPECT_FALSE(allows(call(name, value))) << value;
      }
    }
    server.reset();
  }
}

TEST_F(ForcedCallsTest, ReferencesBetweenTagsMeanTheWholeSchema) {
  start_with(ToolCallFormat::kQwen3Coder);
  const Json by_pointers =
      Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
      "type": "object", "additionalProperties": false, "properties": {
        "from": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"],
                 "additionalProperties": false},
        "to": {"$ref": "#/properties/from"},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "a": {"type": "array", "items": {"enum": [1, 2]}},
        "b": {"$ref": "#/properties/a/items"},
        "c": {"anyOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]}},
      "$defs": {"C": {"type": "array", "items": {"$ref": "#/properties/to"}}}}}}])");
  const Json by_names =
      Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
      "$id": "https://example.com/f", "type": "object", "additionalProperties": false, "properties": {
        "from": {"$anchor": "from", "type": "object", "properties": {"x": {"type": "integer"}},
                 "required": ["x"], "additionalProperties": false},
        "to": {"$ref": "#from"},
        "children": {"type": "array", "items": {"$ref": "https://example.com/f"}},
        "a": {"$id": "lists/a", "type": "array", "items": {"$anchor": "item", "enum": [1, 2]}},
        "b": {"$ref": "lists/a#item"},
        "c": {"anyOf": [{"$dynamicRef": "#C"}, {"type": "null"}]}},
      "$defs": {"C": {"$dynamicAnchor": "C", "type": "array", "items": {"$ref": "f#from"}}}}}}])");
  const auto call = [](const std::string& name, const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=" + name + ">\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  for (const auto& [given, is_strict] : std::initializer_list<std::pair<const Json&, bool>>{
           {by_pointers, true}, {by_pointers, false}, {by_names, true}, {by_names, false}}) {
    Json tools = given;
    SCOPED_TRACE(is_strict);
    tools[0]["function"]["strict"] = is_strict;
    const Reply reply = ask({{"tools", tools}, {"tool_choice", "required"}});
    ASSERT_EQ(reply.status, 200) << reply.body;
    for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
             {"to", R"({"x":1})"},
             {"children", R"([{"children":[{"b":2}]}])"},
             {"b", "2"},
             {"c", R"([{"x":3}])"},
             {"c", "null"}}) {
      EXPECT_TRUE(allows(call(name, value))) << name << value;
    }
    for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
             {"to", R"({"x":"1"})"},
             {"to", "1"},
             {"children", R"([{"children":[{"b":3}]}])"},
             {"children", R"([[]])"},
             {"b", "3"},
             {"c", R"([{"y":3}])"}}) {
      EXPECT_FALSE(allows(call(name, value))) << name << value;
    }
  }
}

TEST_F(ForcedCallsTest, StrictSchemasBetweenTagsAreRefusedForKeywordsOfTheWholeObject) {
  start_with(ToolCallFormat::kGlm);
  const auto tools_with = [](const char* keywords, bool is_strict) {
    Json parameters = Json::parse(R"({"properties": {"a": {"type": "integer"}}})");
    parameters.update(Json::parse(keywords));
    return Json{{{"type", "function"},
                 {"function", {{"name", "f"}, {"strict", is_strict}, {"parameters", parameters}}}}};
  };
  const auto call = [](const std::string& name) {
    return "<tool_call>f\n<arg_key>" + name + "</arg_key>\n<arg_value>5</arg_value>\n</tool_call>";
  };
  for (const auto& [keyword, keywords] : std::initializer_list<std::pair<const char*, const char*>>{
           {"`anyOf`", R"({"anyOf": [{"required": ["a"]}]})"},
           {"`enum`", R"({"enum": [{"a": 1}]})"},
           {"`minProperties`", R"({"minProperties": 1})"},
           {"`patternProperties`", R"({"patternProperties": {"^x": {"type": "integer"}}})"},
           {"`if`", R"({"if": {"required": ["a"]}, "then": false})"},
           {"`required`", R"({"required": ["z"]})"}}) {
    SCOPED_TRACE(keywords);
    for (const char* const choice : {"auto", "required"}) {
      const Reply reply = ask({{"tools", tools_with(keywords, true)}, {"tool_choice", choice}});
      EXPECT_EQ(reply.status, 400);
      EXPECT_EQ(error_of(reply)["code"], "invalid_tool");
      EXPECT_EQ(error_of(reply)["param"], "tools[0].function.parameters");
      EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr(keyword));
    }
    EXPECT_EQ(ask({{"tools", tools_with(keywords, false)}, {"tool_choice", "required"}}).status,
              200);
    EXPECT_TRUE(allows(call("a")));
    EXPECT_FALSE(allows(call("b")));
  }
  const char* const referred = R"({"properties": {}, "$ref": "#/$defs/A", "$defs": {"A":
      {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}})";
  for (const bool is_strict : {true, false}) {
    EXPECT_EQ(ask({{"tools", tools_with(referred, is_strict)}, {"tool_choice", "required"}}).status,
              200);
    EXPECT_TRUE(allows(call("a")));
    EXPECT_FALSE(allows(call("b")));
    EXPECT_FALSE(allows("<tool_call>f\n</tool_call>"));
  }
}

TEST_F(ForcedCallsTest, ACallOnAChannelMayFollowReasoning) {
  start_with(ToolCallFormat::kHarmony);
  const std::string thought = "<|channel|>analysis<|message|>Hm <b> \"x.<|end|><|start|>assistant";
  const std::string call =
      "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
      R"({"city": "<|call|> é"})";
  const std::string now = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
  say(thought + call);
  const Json required = {{"tools", weather_tools()}, {"tool_choice", "required"}};
  const auto made = calls(required);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].first, "weather");
  EXPECT_EQ(made[0].second, Json({{"city", "<|call|> é"}}));
  EXPECT_EQ(ask(required).json()["choices"][0]["message"]["reasoning_content"], "Hm <b> \"x.");
  EXPECT_TRUE(ends_at(thought + call)) << "nothing else may follow";
  EXPECT_TRUE(ends_at(call));
  EXPECT_TRUE(ends_at(now));
  for (const std::string& other :
       {std::string("{}"), thought, thought + thought + now, now + "<|start|>assistant" + now,
        "<|channel|>final<|message|>" + now, "<|channel|>analysis<|message|>a<|start|>" + now,
        std::string("<|channel|>commentary to=functions.later <|constrain|>json<|message|>{}"),
        std::string("<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}"),
        "<|channel|>analysis<|message|>a<|channel|>b<|end|><|start|>assistant" + now}) {
    EXPECT_FALSE(allows(other)) << other;
  }
  const Json named = {{"type", "function"}, {"function", {{"name", "now"}}}};
  EXPECT_EQ(ask({{"tools", weather_tools()}, {"tool_choice", named}}).status, 200);
  EXPECT_TRUE(ends_at(now));
  EXPECT_FALSE(allows(call));
}

TEST_F(ForcedCallsTest, OtherApisForceCallsInTheseFormats) {
  for (const ToolCallFormat format : {ToolCallFormat::kPythonic, ToolCallFormat::kHarmony}) {
    SCOPED_TRACE(parsers::to_string(format));
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    start_with(format);
    const std::string now =
        format == ToolCallFormat::kPythonic
            ? "[now()]"
            : "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
    const Json allowed = Json::parse(R"({"type": "allowed_tools", "allowed_tools": {"mode":
      "required", "tools": [{"type": "function", "function": {"name": "now"}}]}})");
    EXPECT_EQ(ask({{"tools", weather_tools()}, {"tool_choice", allowed}}).status, 200);
    EXPECT_TRUE(ends_at(now));
    const Json message = {{"role", "user"}, {"content", "Hi"}};
    const Json foreign = {
        {{"name", "now"}, {"input_schema", {{"type", "object"}, {"properties", Json::object()}}}}};
    for (const Json& choice : {Json{{"type", "any"}}, Json{{"type", "tool"}, {"name", "now"}}}) {
      const Reply reply = post("/v1/messages", {{"model", "m"},
                                                {"max_tokens", 9},
                                                {"messages", {message}},
                                                {"tools", foreign},
                                                {"tool_choice", choice}});
      EXPECT_EQ(reply.status, 200) << reply.body;
      EXPECT_TRUE(ends_at(now));
    }
    const Reply reply = post("/v1/responses", {{"input", "Hi"},
                                               {"tools", {{{"type", "function"}, {"name", "now"}}}},
                                               {"tool_choice", "required"}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_TRUE(ends_at(now));
    server.reset();
  }
}

TEST_F(ForcedCallsTest, ToolsThatTheFormatCannotWriteAreRefused) {
  start_with(ToolCallFormat::kPythonic);
  Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "strict": true,
    "parameters": {"type": "object", "properties": {"a-b": {"type": "integer"}}}}}])");
  const Json forced = {{"tool_choice", "required"}};
  const auto ask_for = [&](const Json& offered) {
    Json fields = forced;
    fields["tools"] = offered;
    return ask(fields);
  };
  const Reply reply = ask_for(tools);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["code"], "invalid_tool");
  EXPECT_EQ(error_of(reply)["param"], "tools[0].function.parameters");
  EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr("\"a-b\" cannot be named"));
  tools[0]["function"]["strict"] = false;
  EXPECT_EQ(ask_for(tools).status, 200);
  EXPECT_TRUE(ends_at("[f(x=[None])]")) << "any arguments";
  tools[0]["function"]["name"] = "get weather";
  const Reply unnamed = ask_for(tools);
  EXPECT_EQ(unnamed.status, 400);
  EXPECT_EQ(error_of(unnamed)["code"], "invalid_tool");
  EXPECT_EQ(error_of(unnamed)["param"], "tools[0].function.name");
  EXPECT_EQ(ask({{"tools", tools}, {"regex", "yes|no"}}).status, 200);
  EXPECT_TRUE(ends_at("yes"));
}

TEST_F(ForcedCallsTest, APythonCallMayStandForAnotherForm) {
  start_with(ToolCallFormat::kPythonic);
  EXPECT_EQ(ask({{"tools", weather_tools()}, {"regex", "yes|no"}}).status, 200);
  EXPECT_TRUE(ends_at("no"));
  EXPECT_TRUE(ends_at("[now()]"));
  EXPECT_FALSE(allows("no[now()]"));
}

// A vocabulary whose marks are special tokens, as those of real models are.
struct ChannelVocabulary {
  ChannelVocabulary() {
    std::vector<std::string> bytes(1);  // token 0 ends an answer
    for (int byte = 1; byte < 128; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    for (const char* const word :
         {"\": ", "\"}", "analysis", "commentary", " to=functions.", "<|", "|>", "end", "json"}) {
      bytes.emplace_back(word);
    }
    texts = bytes;
    for (const char* const mark :
         {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>", "<|reserved|>"}) {
      texts.emplace_back(mark);
      bytes.push_back(grammar::special_token_bytes(mark));
    }
    masks = std::make_shared<grammar::VocabularyMasks>(std::move(bytes), std::vector<TokenId>{0});
  }

  std::vector<std::string> texts;
  std::shared_ptr<grammar::VocabularyMasks> masks;
};

TEST_F(ForcedCallsTest, GemmasCallsHaveTextsBetweenMarks) {
  start_with(ToolCallFormat::kGemma4);
  const std::string text =
      "<|tool_call>call:weather{city:<|\"|>Par\"is\\, é}<|\"|>,days:null}<tool_call|>"
      "<|tool_call>call:now{}<tool_call|>";
  say(text);
  const Json required = {{"tools", weather_tools()}, {"tool_choice", "required"}};
  const auto made = calls(required);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].second, Json({{"city", "Par\"is\\, é}"}, {"days", nullptr}}));
  EXPECT_EQ(made[1].second, Json::object());
  EXPECT_TRUE(allows(text));
  EXPECT_TRUE(allows("<|tool_call>call:now{}<tool_call|>"));
  EXPECT_TRUE(
      allows("<|tool_call>call:weather{city:<|\"|><|\"|>,days:3,units:<|\"|>F<|\"|>}"
             "<tool_call|>"));
  for (const char* const arguments :
       {"{}", "{city:\"x\"}", "{city:<|\"|>x}", "{\"city\":<|\"|>x<|\"|>}", "{days:3}",
        "{city:<|\"|>x<|\"|>,units:<|\"|>K<|\"|>}", "{city:<|\"|>x<|\"|>, days:3}",
        "{city:<|\"|>x<|\"|>,days:<|\"|>3<|\"|>}", "{city:<|\"|>a<|\"|>b<|\"|>}"}) {
    EXPECT_FALSE(allows("<|tool_call>call:weather" + std::string(arguments) + "<tool_call|>"))
        << arguments;
  }
  EXPECT_FALSE(allows("Well. <|tool_call>call:now{}<tool_call|>"));
}

// The marks that are special tokens of the model stand in a call as these tokens.
TEST_F(ForcedCallsTest, CallsBehindAMarkBeginWithItsToken) {
  struct Case {
    ToolCallFormat format;
    std::vector<std::string> marks;
    std::string call;  // "\1" is the first mark, and so on
  };

  const Case cases[] = {
      {ToolCallFormat::kMistral, {"[TOOL_CALLS]"}, "\1[{\"name\": \"f\", \"arguments\": {}}]"},
      {ToolCallFormat::kGranite, {"<|tool_call|>"}, "\1[{\"name\": \"f\", \"arguments\": {}}]"},
      {ToolCallFormat::kLfm2, {"<|tool_call_start|>", "<|tool_call_end|>"}, "\1[f(t=\"a\")]\2"},
      {ToolCallFormat::kCohere,
       {"<|START_ACTION|>", "<|END_ACTION|>"},
       "\1[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {}}\n]\2"},
      {ToolCallFormat::kSeedOss,
       {"<seed:tool_call>", "</seed:tool_call>"},
       "\1\n<function=f>\n<parameter=t>a</parameter>\n</function>\n\2"},
      {ToolCallFormat::kGemma4,
       {"<|tool_call>", "<tool_call|>", "<|\"|>"},
       "\1call:f{t:\3a <|b\3,e:\3x\3,l:[\3c d\3]}\2"}};
  const Json parameters = Json::parse(R"({"type": "object", "properties": {
      "t": {"type": "string"}, "e": {"enum": ["x", "y"]},
      "l": {"type": "array", "items": {"type": "string", "maxLength": 3, "pattern": "^c"}}}})");
  for (const Case& it : cases) {
    SCOPED_TRACE(parsers::to_string(it.format));
    std::vector<std::string> bytes(1);  // token 0 ends an answer
    for (int byte = 1; byte < 128; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    for (const std::string& mark : it.marks) bytes.push_back(grammar::special_token_bytes(mark));
    const auto masks =
        std::make_shared<grammar::VocabularyMasks>(std::move(bytes), std::vector<TokenId>{0});
    const auto form = parsers::call_form({{"f", parameters}}, {.format = it.format});
    ASSERT_TRUE(form);
    auto automaton = grammar::compile(
        {.kind = grammar::GrammarKind::kStructuralTag, .text = Json{{"format", *form}}.dump()},
        masks.get());
    ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
    const auto state =
        grammar::testing::token_grammar(std::move(automaton).value(), masks)->start();
    EXPECT_FALSE(state->accept(it.marks[0].front())) << "the mark is no text";
    std::string text;
    for (const char byte : it.call) {
      const bool is_mark = byte < 6;
      ASSERT_TRUE(state->accept(is_mark ? TokenId{127 + byte} : TokenId{byte})) << text << byte;
      text += is_mark ? it.marks[static_cast<size_t>(byte) - 1] : std::string(1, byte);
    }
    EXPECT_TRUE(state->is_complete());
    const auto parser = parsers::make_answer_parser(
        {.tool_calls = it.format,
         .tools = std::make_shared<Json>(Json{{{"function", {{"name", "f"}}}}}),
         .is_held_to_form = true,
         .id_seed = "x"});
    parsers::AnswerDeltas deltas;
    parser->push(text, deltas);
    parser->finish(parsers::TextEnd::kStopped, deltas);
    parsers::AssembledAnswer answer;
    for (parsers::AnswerDelta& delta : deltas) answer.add(std::move(delta));
    EXPECT_EQ(answer.content, "");
    ASSERT_EQ(answer.calls.size(), 1u) << text;
    EXPECT_TRUE(answer.calls[0].complete);
  }
}

// Walks at random: marks come as their tokens and never as text, and what comes out is read back as
// one call with valid arguments.
TEST_F(ForcedCallsTest, CallsOnChannelsAreWrittenWithSpecialTokens) {
  const Json schemas[] = {
      Json::parse(R"({"type": "object"})"),
      Json::parse(R"({"type": "object", "required": ["t"], "properties": {"t": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99}}})")};
  Json tools = Json::array();
  std::vector<parsers::CallableTool> callable;
  for (size_t i = 0; i < std::size(schemas); ++i) {
    const std::string name = fmt::format("tool_{}", i);
    callable.push_back({name, schemas[i]});
    tools.push_back(
        {{"type", "function"}, {"function", {{"name", name}, {"parameters", schemas[i]}}}});
  }
  const ChannelVocabulary vocabulary;
  const auto form = parsers::call_form(callable, {.format = ToolCallFormat::kHarmony});
  ASSERT_TRUE(form);
  auto automaton = grammar::compile(
      {.kind = grammar::GrammarKind::kStructuralTag, .text = Json{{"format", *form}}.dump()},
      vocabulary.masks.get());
  ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
  const auto compiled =
      grammar::testing::token_grammar(std::move(automaton).value(), vocabulary.masks);
  std::mt19937 random(5);
  int num_thoughts = 0;
  int num_calls = 0;
  for (int walk = 0; walk < 200; ++walk) {
    const auto state = compiled->start();
    std::vector<uint32_t> mask(vocabulary.masks->num_words());
    std::string text;
    int num_marks = 0;
    for (int step = 0; step < 2000 && !state->is_over(); ++step) {
      ASSERT_TRUE(state->fill_mask(mask).ok());
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < vocabulary.masks->vocab_size(); ++token) {
        if (!grammar::testing::is_allowed(mask, token)) continue;
        allowed.insert(allowed.end(), vocabulary.masks->bytes(token).size() > 1 ? 8 : 1, token);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      const TokenId next = allowed[random() % allowed.size()];
      ASSERT_TRUE(state->accept(next));
      if (vocabulary.masks->text(next).empty()) ++num_marks;
      text += vocabulary.texts[static_cast<size_t>(next)];
    }
    if (!state->is_complete()) continue;
    const bool has_thought = text.starts_with("<|channel|>analysis");
    EXPECT_EQ(num_marks, has_thought ? 7 : 3) << text;
    num_thoughts += has_thought ? 1 : 0;
    const auto parser =
        parsers::make_answer_parser({.reasoning = parsers::ReasoningFormat::kHarmony,
                                     .tool_calls = ToolCallFormat::kHarmony,
                                     .tools = std::make_shared<Json>(tools),
                                     .id_seed = "x"});
    parsers::AnswerDeltas deltas;
    parser->push(text, deltas);
    parser->finish(parsers::TextEnd::kStopped, deltas);
    parsers::AssembledAnswer answer;
    for (parsers::AnswerDelta& delta : deltas) answer.add(std::move(delta));
    EXPECT_EQ(answer.content, "") << text;
    ASSERT_EQ(answer.calls.size(), 1u) << text;
    const Json arguments = Json::parse(answer.calls[0].arguments, nullptr, false);
    const Json& schema = schemas[static_cast<size_t>(answer.calls[0].name.back() - '0')];
    EXPECT_TRUE(grammar::testing::is_valid(arguments, schema, schema)) << text;
    ++num_calls;
  }
  EXPECT_GT(num_thoughts, 20);
  EXPECT_GT(num_calls, 100);
}

TEST(ForcedCallsCodecTest, AFormMayNameTheModelsSpecialTokens) {
  const std::string model = ::heddle::testing::repository_path("models/heddle-tiny");
  const auto tokenizer = tokenizer::load_tokenizer(model);
  ASSERT_TRUE(tokenizer.ok());
  const auto codec = make_model_codec(model, **tokenizer, {});
  ASSERT_TRUE(codec.ok());
  const auto form = (*codec)->compile(
      {.kind = grammar::GrammarKind::kStructuralTag,
       .text = R"({"format": {"type": "sequence", "elements": [{"type": "token", "token":
                   "<|im_start|>"}, {"type": "regex", "pattern": "a"}]}})"},
      {});
  ASSERT_TRUE(form.ok()) << form.status().to_string();
  const TokenId start = (*codec)->encode("<|im_start|>", false).value().at(0);
  const auto state = (*form)->start();
  std::vector<uint32_t> mask(static_cast<size_t>((*form)->vocab_size() + 31) / 32);
  ASSERT_TRUE(state->fill_mask(mask).ok());
  int num_allowed = 0;
  for (const uint32_t word : mask) num_allowed += std::popcount(word);
  EXPECT_EQ(num_allowed, 1);
  ASSERT_TRUE(state->accept(start));
  EXPECT_FALSE(state->accept(start));
  EXPECT_TRUE(state->accept((*codec)->encode("a", false).value().at(0)));
  EXPECT_TRUE(state->is_over());
}

}  // namespace
}  // namespace heddle::server
