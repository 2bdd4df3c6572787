// SPDX-License-Identifier: Apache-2.0
// Forms of answers, from the request's fields to the constraint the engine is given.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "core/compiler.h"
#include "grammar/grammar.h"
#include "grammar/testing/schema_validator.h"
#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"
#include "parsers/call_form.h"
#include "server/http/key_ring.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class AnswerFormTest : public ServerTest {
 protected:
  void chat(const Json& fields) const {
    const Reply reply = post("/v1/chat/completions", chat_body(fields));
    EXPECT_EQ(reply.status, 200) << reply.body;
  }
};

TEST_F(AnswerFormTest, ResponseFormatsBecomeConstraints) {
  start();
  chat({{"response_format", {{"type", "text"}}}});
  EXPECT_EQ(engine->submitted().back().constraint, nullptr);
  chat({{"response_format", {{"type", "json_object"}}}});
  EXPECT_TRUE(allows(R"({"a": [1]})"));
  EXPECT_FALSE(allows("[1]"));
  const Json schema = {{"type", "object"},
                       {"properties", {{"a", {{"type", "integer"}}}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  const Json named = {{"type", "json_schema"},
                      {"json_schema", {{"name", "x"}, {"strict", true}, {"schema", schema}}}};
  for (const Json& format : {named, Json{{"type", "json_schema"}, {"schema", schema}},
                             Json{{"type", "json_object"}, {"schema", schema}}}) {
    chat({{"response_format", format}});
    EXPECT_TRUE(allows(R"({"a": 12})"));
    EXPECT_FALSE(allows(R"({"a": "x"})"));
  }
  chat({{"response_format",
         {{"type", "structural_tag"},
          {"structures", {{{"begin", "<f>"}, {"schema", {{"type", "null"}}}, {"end", "</f>"}}}},
          {"triggers", {"<f>"}}}}});
  EXPECT_TRUE(allows("see <f>null</f>"));
  EXPECT_FALSE(allows("see <f>1</f>"));
}

TEST_F(AnswerFormTest, TheFieldsOfOtherServersAreTheSame) {
  start();
  for (const auto& [name, value, valid, invalid] :
       std::initializer_list<std::tuple<const char*, Json, const char*, const char*>>{
           {"regex", "a+", "aa", "b"},
           {"guided_regex", "a+", "aa", "b"},
           {"ebnf", "root ::= \"x\" [0-9]", "x1", "x"},
           {"guided_grammar", "root ::= \"x\" [0-9]", "x1", "x"},
           {"json_schema", R"({"type": "integer"})", "5", "x"},
           {"guided_json", Json{{"type", "integer"}}, "5", "x"},
           {"guided_choice", Json{"yes", "no"}, "no", "maybe"},
           {"structured_outputs", Json{{"json", {{"type", "integer"}}}}, "5", "x"},
           {"structured_outputs", Json{{"regex", "a+"}}, "aa", "b"},
           {"structured_outputs", Json{{"grammar", "root ::= \"x\""}}, "x", "y"},
           {"structured_outputs", Json{{"choice", {"yes", "no"}}}, "no", "maybe"},
           {"structured_outputs", Json{{"json_object", true}}, "{}", "[]"}}) {
    SCOPED_TRACE(name);
    chat({{name, value}});
    EXPECT_TRUE(allows(valid));
    EXPECT_FALSE(allows(invalid));
    EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}, {name, value}}).status, 200);
    EXPECT_TRUE(allows(valid));
    EXPECT_EQ(post("/generate", {{"text", "a"}, {"sampling_params", {{name, value}}}}).status, 200);
    EXPECT_TRUE(allows(valid));
    EXPECT_FALSE(allows(invalid));
  }
}

TEST_F(AnswerFormTest, PromptsOfOneCallHaveABoundedNumberOfForms) {
  start();
  Json prompts = Json::array();
  Json params = Json::array();
  for (int i = 0; i < 65; ++i) {
    prompts.push_back("a");
    params.push_back({{"regex", fmt::format("a{{{}}}", i % 64)}});
  }
  EXPECT_EQ(post("/generate", {{"text", prompts}, {"sampling_params", params}}).status, 200);
  EXPECT_EQ(engine->submitted().size(), 65u);
  params[0]["regex"] = "b";
  params[64]["regex"] = "c";
  const Reply reply = post("/generate", {{"text", prompts}, {"sampling_params", params}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["param"], "sampling_params");
  EXPECT_EQ(engine->submitted().size(), 65u);
}

TEST_F(AnswerFormTest, EveryApiBringsItsForms) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  const Json schema = {{"type", "integer"}};
  const Json said = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  EXPECT_EQ(
      post("/v1/responses",
           {{"input", "Hi"},
            {"text", {{"format", {{"type", "json_schema"}, {"name", "x"}, {"schema", schema}}}}}})
          .status,
      200);
  EXPECT_TRUE(allows("5"));
  EXPECT_FALSE(allows("x"));
  EXPECT_EQ(post("/api/chat", {{"messages", said}, {"format", schema}}).status, 200);
  EXPECT_TRUE(allows("5"));
  EXPECT_FALSE(allows("x"));
  EXPECT_EQ(
      post("/v1/messages", {{"messages", said},
                            {"max_tokens", 5},
                            {"tools", {{{"name", "now"}, {"input_schema", {{"type", "object"}}}}}},
                            {"tool_choice", {{"type", "any"}}}})
          .status,
      200);
  EXPECT_TRUE(allows("<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(allows("5"));
}

TEST_F(AnswerFormTest, ASchemaThatCannotBeKeptIsRefusedByPlace) {
  start();
  const Reply reply =
      post("/v1/chat/completions",
           chat_body({{"response_format",
                       {{"type", "json_schema"},
                        {"json_schema",
                         {{"name", "x"}, {"schema", {{"items", {{"uniqueItems", true}}}}}}}}}}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["code"], "invalid_json_schema");
  EXPECT_THAT(error_of(reply)["message"].get<std::string>(),
              HasSubstr("at \"#/items/uniqueItems\": supported only where items is"));
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(AnswerFormTest, CallsAreForcedInTheModelsFormat) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  const Json tools = Json::parse(R"([
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
      "properties": {"n": {"type": "integer"}}, "required": ["n"]}}},
    {"type": "function", "function": {"name": "now"}}])");
  const std::string add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 1}}\n</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  chat({{"tools", tools}, {"tool_choice", "required"}});
  EXPECT_TRUE(allows(add));
  EXPECT_TRUE(allows(add + "\n" + now));
  EXPECT_FALSE(allows("No."));
  EXPECT_FALSE(allows("<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>"));
  chat({{"tools", tools}, {"tool_choice", "required"}, {"parallel_tool_calls", false}});
  EXPECT_TRUE(allows(now));
  EXPECT_FALSE(allows(now + "\n" + now));
  chat(
      {{"tools", tools}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "now"}}}}}});
  EXPECT_TRUE(allows(now));
  EXPECT_FALSE(allows(add));
  chat({{"tools", tools}});
  EXPECT_EQ(engine->submitted().back().constraint, nullptr);
  Json strict = tools;
  strict[0]["function"]["strict"] = true;
  chat({{"tools", strict}});
  EXPECT_TRUE(allows("No need."));
  EXPECT_TRUE(allows("I add. " + add));
  EXPECT_FALSE(
      allows("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": true}}\n</tool_call>"));
  chat({{"tools", tools}, {"regex", "[0-9]+"}});
  EXPECT_TRUE(allows("12"));
  EXPECT_TRUE(allows(add));
  EXPECT_FALSE(allows("twelve"));
  const Reply both =
      post("/v1/chat/completions",
           chat_body({{"tools", tools}, {"tool_choice", "required"}, {"regex", "a"}}));
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(error_of(both)["param"], "tool_choice");
}

TEST_F(AnswerFormTest, ManyChoicesAndToolsAreTaken) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  // 128 take longer to compile there than a request may.
  constexpr int kNumTools = HEDDLE_SANITIZED ? 24 : 128;
  Json choices = Json::array();
  Json tools = Json::array();
  for (int i = 0; i < 1024; ++i) choices.push_back(fmt::format("choice {}", i));
  for (int i = 0; i < kNumTools; ++i) {
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", fmt::format("tool_{}", i)},
                       {"strict", i == 7},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{"x", {{"type", "boolean"}}}}},
                         {"required", {"x"}}}}}}});
  }
  chat({{"guided_choice", choices}});
  EXPECT_TRUE(allows("choice 1023"));
  EXPECT_FALSE(allows("choice 1024"));
  chat({{"tools", tools}});
  const auto call = [](int tool, const char* arguments) {
    return fmt::format("<tool_call>\n{{\"name\": \"tool_{}\", \"arguments\": {}}}\n</tool_call>",
                       tool, arguments);
  };
  EXPECT_TRUE(allows("Well. " + call(kNumTools - 1, R"({"y": 1})"))) << "it is not strict";
  EXPECT_TRUE(allows(call(7, R"({"x": true})")));
  EXPECT_FALSE(allows(call(7, R"({"y": 1})")));
  chat({{"tools", tools}, {"tool_choice", "required"}});
  EXPECT_TRUE(allows(call(kNumTools - 1, R"({"x": true})")));
  EXPECT_FALSE(allows(call(kNumTools - 1, R"({"y": 1})")));
}

TEST_F(AnswerFormTest, AStrictToolsParametersAreKeptToOrRefused) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  Json tools = Json::parse(R"([{"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "pick", "strict": true, "parameters":
      {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}}])");
  for (const char* const choice : {"auto", "required"}) {
    const Reply reply =
        post("/v1/chat/completions", chat_body({{"tools", tools}, {"tool_choice", choice}}));
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(error_of(reply)["code"], "invalid_tool");
    EXPECT_EQ(error_of(reply)["param"], "tools[1].function.parameters");
    EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr("uniqueItems"));
  }
  tools[1]["function"]["strict"] = false;
  chat({{"tools", tools}, {"tool_choice", "required"}});
  EXPECT_TRUE(
      allows("<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"a\": [1, 1]}}\n</tool_call>"))
      << "all but what cannot be kept to";
  EXPECT_FALSE(
      allows("<tool_call>\n{\"name\": \"pick\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  EXPECT_FALSE(allows("<tool_call>\n{\"name\": \"pick\", \"arguments\": 1}\n</tool_call>"));
}

TEST_F(AnswerFormTest, AStrictToolHasNoBoundsOfTextsBetweenTags) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen3Coder;
  start();
  Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "strict": true,
    "parameters": {"type": "object", "properties": {
      "n": {"type": "integer", "maximum": 5},
      "unit": {"type": "string", "enum": ["a", "b"], "maxLength": 1},
      "c": {"type": "string", "pattern": "^[a-z]{3}$"}}}}}])");
  const Json forced = {{"tools", tools}, {"tool_choice", "required"}};
  const Reply reply = post("/v1/chat/completions", chat_body(forced));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["code"], "invalid_tool");
  EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr("`pattern` of `c`"));
  tools[0]["function"]["parameters"]["properties"]["c"].erase("pattern");
  chat({{"tools", tools}, {"tool_choice", "required"}});
}

TEST_F(AnswerFormTest, StrictCallsStandBesideTextWithinTheirSection) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "strict": true,
    "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}}])");
  const auto answer = [](parsers::ToolCallFormat format, const char* arguments) {
    if (format == parsers::ToolCallFormat::kNemotronV2) {
      return fmt::format(R"(I see.<TOOLCALL>[{{"name": "f", "arguments": {}}}]</TOOLCALL>)",
                         arguments);
    }
    return format == parsers::ToolCallFormat::kKimiK2
               ? fmt::format(
                     "I see.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
                     "<|tool_call_argument_begin|>{}<|tool_call_end|>"
                     "<|tool_calls_section_end|>",
                     arguments)
               : fmt::format(
                     "I see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"
                     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                     arguments);
  };
  for (const auto format : {parsers::ToolCallFormat::kDeepseekV3, parsers::ToolCallFormat::kKimiK2,
                            parsers::ToolCallFormat::kNemotronV2}) {
    SCOPED_TRACE(parsers::to_string(format));
    options.tool_call_format = format;
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    start();
    chat({{"tools", tools}});
    EXPECT_TRUE(allows("No call."));
    EXPECT_TRUE(allows(answer(format, R"({"n": 5})")));
    EXPECT_FALSE(allows(answer(format, R"({"n": "5"})")));
    server.reset();
  }
}

TEST_F(AnswerFormTest, CallsWithTagsHaveTheToolsParameters) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
    {"type": "object", "required": ["t", "n"], "properties": {"t": {"type": "string"},
      "o": {"enum": ["a", "b"]}, "c": {"type": "string", "const": "z"}, "n": {"$ref": "#/$defs/n", "type": "integer"}},
      "$defs": {"n": {"minimum": 3}}}}}, {"type": "function", "function": {"name": "any",
      "parameters": {"type": "object"}}}])");

  struct Case {
    parsers::ToolCallFormat format;
    std::string call;
    std::string text;  // of parameter t
    std::string choice;
    std::string number;
    std::string end;
  };

  const Case cases[] = {
      {parsers::ToolCallFormat::kQwen3Coder, "<tool_call>\n<function=f>\n",
       "<parameter=t>\nx < y\n</b>\n</parameter>\n", "<parameter=o>\nb\n</parameter>\n",
       "<parameter=n>\n5\n</parameter>\n", "</function>\n</tool_call>"},
      {parsers::ToolCallFormat::kGlm, "<tool_call>f\n",
       "<arg_key>t</arg_key>\n<arg_value>x < y\n</b></arg_value>\n",
       "<arg_key>o</arg_key>\n<arg_value>b</arg_value>\n",
       "<arg_key>n</arg_key>\n<arg_value>5</arg_value>\n", "</tool_call>"},
      {parsers::ToolCallFormat::kDeepseekV32,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n",
       "<｜DSML｜parameter name=\"t\" string=\"true\">x < y\n</b></｜DSML｜parameter>\n",
       "<｜DSML｜parameter name=\"o\" string=\"true\">b</｜DSML｜parameter>\n",
       "<｜DSML｜parameter name=\"n\" string=\"false\">5</｜DSML｜parameter>\n",
       "</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
      {parsers::ToolCallFormat::kMinimaxM2, "<minimax:tool_call>\n<invoke name=\"f\">\n",
       "<parameter name=\"t\">x < y\n</b></parameter>\n", "<parameter name=\"o\">b</parameter>\n",
       "<parameter name=\"n\">5</parameter>\n", "</invoke>\n</minimax:tool_call>"},
      {parsers::ToolCallFormat::kSeedOss, "<seed:tool_call>\n<function=f>\n",
       "<parameter=t>x < y\n</b></parameter>\n", "<parameter=o>b</parameter>\n",
       "<parameter=n>5</parameter>\n", "</function>\n</seed:tool_call>"}};
  for (const Case& it : cases) {
    SCOPED_TRACE(parsers::to_string(it.format));
    options.tool_call_format = it.format;
    const std::string whole = it.call + it.text + it.choice + it.number + it.end;
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    engine->script = [&](const Request&) { return answer_events({whole}); };
    start();
    const Reply reply =
        post("/v1/chat/completions", chat_body({{"tools", tools}, {"tool_choice", "required"}}));
    const Json call = reply.json()["choices"][0]["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(call["name"], "f");
    EXPECT_EQ(Json::parse(call["arguments"].get<std::string>()),
              Json::parse(R"({"t": "x < y\n</b>", "o": "b", "n": 5})"));
    EXPECT_TRUE(allows(whole));
    EXPECT_TRUE(allows(it.call + it.text + it.number + it.end)) << "o is not required";
    EXPECT_FALSE(allows(it.call + it.text + it.end)) << "n is";
    const auto constant = [&](const std::string& value) {
      std::string parameter = it.choice;
      for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
               {"=o>", "=c>"},
               {">o<", ">c<"},
               {"\"o\"", "\"c\""},
               {"\nb\n", "\n" + value + "\n"},
               {">b<", ">" + value + "<"}}) {
        const size_t at = parameter.find(from);
        if (at != std::string::npos) parameter.replace(at, from.size(), to);
      }
      return it.call + it.text + parameter + it.number + it.end;
    };
    EXPECT_TRUE(allows(constant("z"))) << constant("z");
    EXPECT_FALSE(allows(constant("y")));
    EXPECT_FALSE(allows("Well. " + whole));
    std::string wrong = whole;
    wrong[wrong.find('5', it.call.size())] = '2';
    EXPECT_FALSE(allows(wrong)) << "of a definition's minimum";
    std::string any = it.call;
    any.replace(any.rfind('f'), 1, "any");
    EXPECT_TRUE(allows(any + it.end));
    EXPECT_TRUE(allows(any + it.text + it.text + it.end)) << "any parameters";
    server.reset();
  }
}

TEST_F(AnswerFormTest, StrictCallsWithTagsStandBesideText) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "strict": true,
    "parameters": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "any"}}])");

  struct Case {
    parsers::ToolCallFormat format;
    std::string begin;
    std::string number;
    std::string end;
    std::string mark;  // that no text has
  };

  const Case cases[] = {
      {parsers::ToolCallFormat::kQwen3Coder, "<tool_call>\n<function=f>\n",
       "<parameter=n>\n5\n</parameter>\n", "</function>\n</tool_call>", "<tool_call>"},
      {parsers::ToolCallFormat::kQwen3Coder, "<function=f>\n", "<parameter=n>\n5\n</parameter>\n",
       "</function>", "<function="},
      {parsers::ToolCallFormat::kGlm, "<tool_call>f\n",
       "<arg_key>n</arg_key>\n<arg_value>5</arg_value>\n", "</tool_call>", "<tool_call>"},
      {parsers::ToolCallFormat::kDeepseekV32,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n",
       "<｜DSML｜parameter name=\"n\" string=\"false\">5</｜DSML｜parameter>\n",
       "</｜DSML｜invoke>\n</｜DSML｜function_calls>", "<invoke "},
      {parsers::ToolCallFormat::kMinimaxM2, "<minimax:tool_call>\n<invoke name=\"f\">\n",
       "<parameter name=\"n\">5</parameter>\n", "</invoke>\n</minimax:tool_call>", "<invoke "}};
  for (const Case& it : cases) {
    SCOPED_TRACE(it.begin);
    options.tool_call_format = it.format;
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
    engine->script = [&](const Request&) {
      return answer_events({"I see. " + it.begin + it.number + it.end});
    };
    start();
    const Reply reply = post("/v1/chat/completions", chat_body({{"tools", tools}}));
    const Json call = reply.json()["choices"][0]["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(Json::parse(call["arguments"].get<std::string>()), Json({{"n", 5}}));
    EXPECT_TRUE(allows("No call: 3 < 5."));
    EXPECT_TRUE(allows("I see. " + it.begin + it.number + it.end));
    EXPECT_TRUE(allows(it.begin + it.number + it.end + " And so on."));
    EXPECT_FALSE(allows("I see. " + it.begin + it.end)) << "n is required";
    std::string wrong = it.begin + it.number + it.end;
    wrong.replace(wrong.find('5', it.begin.size()), 1, "five");
    EXPECT_FALSE(allows(wrong));
    EXPECT_FALSE(allows("What is " + it.mark + " for?"));
    std::string other = it.begin;
    other.replace(other.rfind('f'), 1, "any");
    EXPECT_TRUE(allows(other + it.end)) << "it is not strict";
    server.reset();
  }
}

// Walks through forms of calls at random, with a vocabulary in which the marks are words: no mask
// is empty or an error, and what comes out is read back as calls with such arguments.
TEST_F(AnswerFormTest, WhateverAForcedCallComesToIsReadBackAsOne) {
  using parsers::ToolCallFormat;
  const Json schemas[] = {
      Json::parse(R"({"type": "object"})"),
      Json::parse(R"({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer",
        "minimum": 0, "maximum": 99}}})"),
      Json::parse(R"({"type": "object", "required": ["a", "t"], "properties": {"t": {"type":
        "string"}, "o": {"enum": ["x", "yy"]}, "a": {"type": "array", "maxItems": 3, "items":
        {"type": "boolean"}}, "d": {"type": "object", "additionalProperties": false, "properties":
        {"k": {"type": "null"}}}, "e": {"type": "integer", "maximum": 9, "minimum": 5}}})")};
  std::mt19937 random(11);
  int num_calls = 0;
  for (const ToolCallFormat format :
       {ToolCallFormat::kQwen, ToolCallFormat::kLlama3, ToolCallFormat::kMistral,
        ToolCallFormat::kDeepseekV3, ToolCallFormat::kKimiK2, ToolCallFormat::kQwen3Coder,
        ToolCallFormat::kGlm, ToolCallFormat::kDeepseekV32, ToolCallFormat::kPythonic,
        ToolCallFormat::kGemma4, ToolCallFormat::kMinimaxM2, ToolCallFormat::kSeedOss,
        ToolCallFormat::kLfm2, ToolCallFormat::kGranite, ToolCallFormat::kNemotronV2,
        ToolCallFormat::kCohere, ToolCallFormat::kHarmony}) {
    SCOPED_TRACE(parsers::to_string(format));
    std::vector<parsers::CallableTool> callable;
    Json tools = Json::array();
    for (size_t i = 0; i < std::size(schemas); ++i) {
      const std::string name = fmt::format("tool_{}", i);
      callable.push_back({name, schemas[i]});
      tools.push_back(
          {{"type", "function"}, {"function", {{"name", name}, {"parameters", schemas[i]}}}});
    }
    const auto form = parsers::call_form(callable, {.format = format});
    ASSERT_TRUE(form);
    std::vector<std::string> words(1);  // token 0 ends an answer
    for (int byte = 1; byte < 128; ++byte) words.emplace_back(1, static_cast<char>(byte));
    for (const char* const word : {"</parameter>",
                                   "</parameter>\n",
                                   "</arg_value>\n",
                                   "</｜DSML｜parameter>\n",
                                   "</",
                                   "parameter",
                                   "\"}",
                                   "\", \"",
                                   "ab",
                                   "<tool_call>",
                                   "{}",
                                   "\n\n",
                                   "｜",
                                   "▁",
                                   "<|end|>",
                                   "<|start|>",
                                   "\")",
                                   "True",
                                   "<|\"|>",
                                   "<tool_call|>"}) {
      words.emplace_back(word);
    }
    auto automaton = grammar::compile(
        {.kind = grammar::GrammarKind::kStructuralTag, .text = Json{{"format", *form}}.dump()});
    ASSERT_TRUE(automaton.ok()) << automaton.status().to_string();
    const auto compiled = std::make_shared<const grammar::TokenGrammar>(
        std::move(automaton).value(),
        std::make_shared<grammar::VocabularyMasks>(words, std::vector<TokenId>{0}));
    for (int walk = 0; walk < 60; ++walk) {
      const auto state = compiled->start();
      std::vector<uint32_t> mask((words.size() + 31) / 32);
      std::string text;
      for (int step = 0; step < 3000 && !state->is_over(); ++step) {
        const Status status = state->fill_mask(mask);
        ASSERT_TRUE(status.ok()) << status.to_string() << " after " << text;
        std::vector<TokenId> allowed;
        for (size_t i = 0; i < words.size(); ++i) {
          if ((mask[i / 32] >> (i % 32) & 1) == 0) continue;
          const bool is_end = i == 0 || words[i].size() > 1;  // else free text hardly ends
          allowed.insert(allowed.end(), is_end ? 12 : 1, static_cast<TokenId>(i));
        }
        ASSERT_FALSE(allowed.empty()) << text;
        const TokenId next = allowed[random() % allowed.size()];
        ASSERT_TRUE(state->accept(next));
        text += words[static_cast<size_t>(next)];
        if (next == 0) break;
      }
      if (!state->is_complete()) continue;
      const auto parser = parsers::make_answer_parser({.tool_calls = format,
                                                       .tools = std::make_shared<Json>(tools),
                                                       .is_held_to_form = true,
                                                       .id_seed = "x"});
      parsers::AnswerDeltas deltas;
      parser->push(text, deltas);
      parser->finish(parsers::TextEnd::kStopped, deltas);
      parsers::AssembledAnswer answer;
      for (parsers::AnswerDelta& delta : deltas) answer.add(std::move(delta));
      ASSERT_FALSE(answer.calls.empty()) << text;
      for (const parsers::ToolCall& call : answer.calls) {
        const Json arguments = Json::parse(call.arguments, nullptr, false);
        ASSERT_TRUE(arguments.is_object()) << call.arguments << " of " << text;
        const Json& schema = schemas[static_cast<size_t>(call.name.back() - '0')];
        EXPECT_TRUE(grammar::testing::is_valid(arguments, schema, schema)) << text;
        ++num_calls;
      }
    }
  }
  EXPECT_GT(num_calls, 500);
}

TEST_F(AnswerFormTest, WithoutAFormatOfCallsAForcedOneIsJson) {
  options.tool_call_format = parsers::ToolCallFormat::kNone;
  start();
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "now"}},
      {"type": "function", "function": {"name": "get_weather", "description": "Of a city.",
       "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                      "required": ["city"]}}}])");
  chat({{"tools", tools}, {"tool_choice", "required"}});
  EXPECT_TRUE(allows(R"({"name": "get_weather", "arguments": {"city": "Oslo"}})"));
  EXPECT_TRUE(allows(R"({"name": "now", "arguments": {}})"));
  EXPECT_FALSE(allows(R"({"name": "now", "arguments": {}})"
                      R"({"name": "now", "arguments": {}})"));
  EXPECT_FALSE(allows(R"({"name": "get_weather", "arguments": {}})"));
  const std::vector<TokenId> ids = engine->submitted().back().prompt;
  const std::string prompt(ids.begin(), ids.end());
  EXPECT_THAT(prompt, HasSubstr("system: These tools can be called:\n{\"name\":\"now\"}\n"
                                "{\"name\":\"get_weather\",\"description\":\"Of a city.\""));
  EXPECT_THAT(prompt, HasSubstr("Answer with a call of one of them as JSON: {\"name\": \"NAME\""));
  EXPECT_THAT(prompt, ::testing::Not(HasSubstr("tools: ")));
  chat(
      {{"tools", tools}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "now"}}}}}});
  EXPECT_FALSE(allows(R"({"name": "get_weather", "arguments": {"city": "Oslo"}})"));
}

TEST_F(AnswerFormTest, ToolsThatTheTemplateShowsNotAreListedInTheSystemText) {
  codec_gate->hides_tools = true;
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "now"}}])");
  const auto prompt_with = [&](const Json& choice) {
    chat({{"tools", tools}, {"tool_choice", choice}});
    const std::vector<TokenId> ids = engine->submitted().back().prompt;
    return std::string(ids.begin(), ids.end());
  };
  const std::string list = "system: These tools can be called:\n{\"name\":\"now\"}";
  EXPECT_THAT(prompt_with("auto"), HasSubstr(list + "|"));
  EXPECT_THAT(prompt_with("required"), HasSubstr(list + "\nAnswer with a call of one of them.|"));
  EXPECT_THAT(prompt_with({{"type", "function"}, {"function", {{"name", "now"}}}}),
              HasSubstr(list + "\nAnswer with a call of \"now\".|"));
  EXPECT_THAT(prompt_with("none"), ::testing::Not(HasSubstr("now")));
}

// Forms are not compiled until it ends, or the gate is opened.
class OpenedAtTheEnd {
 public:
  explicit OpenedAtTheEnd(FakeCodec::Gate& gate) : gate_(gate) { gate_.forms_closed = true; }

  ~OpenedAtTheEnd() { gate_.forms_closed = false; }

  OpenedAtTheEnd(const OpenedAtTheEnd&) = delete;
  OpenedAtTheEnd& operator=(const OpenedAtTheEnd&) = delete;

 private:
  FakeCodec::Gate& gate_;
};

TEST_F(AnswerFormTest, CompilingFormsDelaysNoOtherRequest) {
  options.num_workers = 1;
  start();
  const OpenedAtTheEnd closed(*codec_gate);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    const Json body = chat_body({{"regex", fmt::format("a{{{}}}", i + 1)}});
    clients.back()->send_request("POST", kChat, body.dump());
  }
  ASSERT_TRUE(eventually([this] { return codec_gate->num_compiling == 1; }));
  chat(Json::object());
  EXPECT_EQ(engine->submitted().size(), 1u);
  EXPECT_EQ(codec_gate->num_compiled, 0);
  clients.back()->reset();
  EXPECT_TRUE(eventually([this] {
    chat(Json::object());
    return codec_gate->num_compiling == 1;
  })) << "one form at a time";
  const size_t num_plain = engine->submitted().size();
  codec_gate->forms_closed = false;
  for (size_t i = 0; i + 1 < clients.size(); ++i) {
    EXPECT_EQ(clients[i]->read_reply().status, 200);
  }
  EXPECT_EQ(engine->submitted().size(), num_plain + 7);
  EXPECT_LE(codec_gate->num_compiled, 8) << "a client that left may have been in time";
  codec_gate->forms_closed = true;
  chat({{"regex", "a{1}"}});  // is not compiled again
}

// One key's eight new forms come before another key's one; that one is the second or third that is
// compiled.
TEST_F(AnswerFormTest, KeysTakeTurnsWithTheirForms) {
  options.num_workers = 1;
  options.api_keys = parse_api_keys("sk-many-forms many\nsk-one-form one\n").value();
  start();
  const auto bearer = [](std::string_view key) {
    return fmt::format("Authorization: Bearer {}\r\n", key);
  };
  const OpenedAtTheEnd closed(*codec_gate);
  std::vector<std::unique_ptr<HttpClient>> clients;
  const auto send = [&](std::string_view key, const Json& body) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    clients.back()->send_request("POST", kChat, body.dump(), bearer(key));
  };
  for (int i = 0; i < 8; ++i) {
    send("sk-many-forms", chat_body({{"regex", fmt::format("c{{{}}}", i + 1)}}));
  }
  ASSERT_TRUE(eventually([this] { return codec_gate->num_compiling == 1; }));
  // The only worker reads bodies in order: each answer says that those before it wait.
  const auto read_all = [&] {
    EXPECT_EQ(HttpClient(server->port())
                  .call("POST", kChat, chat_body().dump(), bearer("sk-one-form"))
                  .status,
              200);
  };
  read_all();
  send("sk-one-form", chat_body({{"regex", "d"}}));
  ASSERT_TRUE(eventually([&] {
    read_all();
    return engine->submitted().size() >= 3;
  }));
  const size_t num_plain = engine->submitted().size();
  codec_gate->forms_closed = false;
  for (const auto& client : clients) EXPECT_EQ(client->read_reply().status, 200);
  const std::vector<Request> submitted = engine->submitted();
  ASSERT_EQ(submitted.size(), num_plain + 9);
  const auto first = submitted.begin() + static_cast<std::ptrdiff_t>(num_plain);
  const auto one = std::find_if(first, submitted.end(),
                                [](const Request& request) { return request.tenant == "one"; });
  EXPECT_LE(one - first, 2);
}

TEST_F(AnswerFormTest, ATooLongQueueOfFormsIsRefused) {
  start();
  const OpenedAtTheEnd closed(*codec_gate);
  std::vector<std::unique_ptr<HttpClient>> clients;
  constexpr int kOneMore = 258;  // than wait and are compiled
  for (int i = 0; i < kOneMore; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    const Json body = chat_body({{"regex", fmt::format("b{{{}}}", i + 1)}});
    clients.back()->send_request("POST", kChat, body.dump());
    if (i == 0) {
      ASSERT_TRUE(eventually([this] { return codec_gate->num_compiling == 1; }));
    }
  }
  // Workers may take the requests in another order: whichever came last is refused.
  std::vector<pollfd> sockets;
  for (const auto& client : clients) {
    sockets.push_back({.fd = client->descriptor(), .events = POLLIN, .revents = 0});
  }
  ASSERT_EQ(::poll(sockets.data(), sockets.size(), 120000), 1);
  const auto answered =
      std::ranges::find_if(sockets, [](const pollfd& socket) { return socket.revents != 0; });
  const Reply refused = clients[static_cast<size_t>(answered - sockets.begin())]->read_reply();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(error_of(refused)["code"], "queue_full");
  chat(Json::object());
  codec_gate->forms_closed = false;
  EXPECT_EQ(clients.front()->read_reply().status, 200);
}

TEST_F(AnswerFormTest, DeepTextInASchemaIsRefused) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  const std::string deep(100000, '[');
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "now"}}])");
  for (const char* const name : {"json_schema", "structural_tag", "regex", "ebnf"}) {
    for (const Json& fields : {Json{{name, deep}}, Json{{name, deep}, {"tools", tools}}}) {
      const Reply reply = post("/v1/chat/completions", chat_body(fields));
      EXPECT_EQ(reply.status, 400) << name;
      EXPECT_EQ(error_of(reply)["param"], name);
      EXPECT_LT(reply.body.size(), 1000u);
    }
  }
}

TEST_F(AnswerFormTest, TheFormBeginsAfterReasoning) {
  options.reasoning_format = parsers::ReasoningFormat::kThinkFromStart;
  start();
  chat({{"regex", "yes|no"}});
  EXPECT_TRUE(allows("Hm. </think>\n\nyes"));
  EXPECT_FALSE(allows("yes"));
  EXPECT_FALSE(allows("Hm. </think>\n\nmaybe"));
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}, {"regex", "yes|no"}}).status, 200);
  EXPECT_TRUE(allows("yes")) << "texts are not read for reasoning";
}

TEST_F(AnswerFormTest, AModelThatMayReasonMay) {
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  start();
  chat({{"regex", "yes|no"}});
  EXPECT_TRUE(allows("<think>Hm.</think>\n\nyes"));
  EXPECT_TRUE(allows("yes"));
  EXPECT_FALSE(allows("<think>yes"));
  chat({{"regex", "yes|no"}, {"input_ids", {'<', '/', 't', 'h', 'i', 'n', 'k', '>'}}});
  EXPECT_TRUE(allows("yes"));
  EXPECT_FALSE(allows("<think>Hm.</think>yes")) << "the prompt closed it";
}

TEST_F(AnswerFormTest, AFormThatAModelsReasoningRulesOutIsRefused) {
  options.reasoning_format = parsers::ReasoningFormat::kHarmony;
  start();
  const Reply reply = post("/v1/chat/completions", chat_body({{"regex", "yes|no"}}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["code"], "unsupported_parameter");
}

}  // namespace
}  // namespace heddle::server
