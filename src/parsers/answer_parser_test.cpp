// SPDX-License-Identifier: Apache-2.0
// Every parser on answers as models write them, whole and however they are cut.
#include "parsers/answer_parser.h"

#include <ostream>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "parsers/answer_delta.h"

namespace heddle::parsers {
namespace {

using Json = nlohmann::ordered_json;
using enum ToolCallFormat;
constexpr auto kNoReasoning = ReasoningFormat::kNone;
constexpr auto kThink = ReasoningFormat::kThink;

struct Call {
  std::string name;
  std::string arguments;
};

struct Sample {
  std::string text;
  ToolCallFormat calls = ToolCallFormat::kNone;
  ReasoningFormat reasoning = kNoReasoning;
  // As an answer sent as a whole shows it.
  std::string content;
  std::vector<Call> emitted_calls = {};
  std::string thought = {};
  bool inside = false;      // the prompt opened the reasoning
  bool incomplete = false;  // a call is: a stream tells what it can of it
  TextEnd end = TextEnd::kStopped;
};

std::shared_ptr<const Json> tools() {
  static const auto kTools = std::make_shared<const Json>(Json::parse(R"([
    {"type": "function", "function": {"name": "w", "parameters": {"type": "object",
      "properties": {"c": {"type": "string"}, "a": {"type": "integer"}, "b": {"type": "string"},
        "n": {"type": "number"}, "y": {"type": "boolean"}, "l": {"type": "array"},
        "o": {"type": "object"}, "u": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "m": {"type": ["string", "null"]}, "k": {"type": ["null", "boolean", "integer"]}}}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
      "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}}])"));
  return kTools;
}

AnswerParserOptions options_of(const Sample& sample, bool keep_call_text) {
  return {.reasoning = sample.reasoning,
          .starts_in_reasoning = sample.inside,
          .tool_calls = sample.calls,
          .tools = tools(),
          .keep_call_text = keep_call_text,
          .id_seed = "seed"};
}

// An answer as a stream's client puts it together: what was emitted of a call stays.
struct Heard {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  std::vector<bool> complete;

  bool operator==(const Heard&) const = default;

  friend void PrintTo(const Heard& heard, std::ostream* out) {
    *out << "reasoning \"" << heard.reasoning << "\" content \"" << heard.content << '"';
    for (const ToolCall& call : heard.calls) *out << ' ' << call.name << call.arguments;
  }
};

// Checks the order that answer_delta.h promises.
Heard hear(const AnswerDeltas& deltas) {
  Heard heard;
  bool open = false;
  for (const AnswerDelta& delta : deltas) {
    if (const auto* const thought = std::get_if<ReasoningDelta>(&delta)) {
      EXPECT_FALSE(open);
      EXPECT_FALSE(thought->text.empty());
      heard.reasoning += thought->text;
    } else if (const auto* const content = std::get_if<ContentDelta>(&delta)) {
      EXPECT_FALSE(open);
      EXPECT_FALSE(content->text.empty());
      heard.content += content->text;
    } else if (const auto* const begin = std::get_if<ToolCallBegin>(&delta)) {
      EXPECT_FALSE(open);
      EXPECT_EQ(begin->index, heard.calls.size());
      open = true;
      heard.calls.push_back({begin->id, begin->name, ""});
    } else if (const auto* const arguments = std::get_if<ArgumentsDelta>(&delta)) {
      EXPECT_TRUE(open);
      EXPECT_FALSE(arguments->json.empty());
      EXPECT_EQ(arguments->index + 1, heard.calls.size());
      heard.calls.back().arguments += arguments->json;
    } else {
      const auto& end = std::get<ToolCallEnd>(delta);
      EXPECT_TRUE(open);
      EXPECT_EQ(end.index + 1, heard.calls.size());
      open = false;
      heard.complete.push_back(end.complete);
      heard.calls.back().complete = end.complete;
      if (end.complete) {
        const Json json = Json::parse(heard.calls.back().arguments, nullptr, false);
        EXPECT_TRUE(json.is_object()) << heard.calls.back().arguments;
      }
    }
  }
  EXPECT_FALSE(open);
  return heard;
}

AnswerDeltas parse(const Sample& sample, const std::vector<size_t>& cuts, bool keep_call_text) {
  const auto parser = make_answer_parser(options_of(sample, keep_call_text));
  AnswerDeltas deltas;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parser->push(std::string_view(sample.text).substr(begin, cut - begin), deltas);
    begin = cut;
  }
  parser->push(std::string_view(sample.text).substr(begin), deltas);
  parser->finish(sample.end, deltas);
  return deltas;
}

AssembledAnswer assemble(AnswerDeltas deltas) {
  AssembledAnswer answer;
  for (AnswerDelta& delta : deltas) answer.add(std::move(delta));
  return answer;
}

void check(const Sample& sample) {
  SCOPED_TRACE(sample.text);
  const AssembledAnswer answer = assemble(parse(sample, {}, true));
  EXPECT_EQ(answer.content, sample.content);
  EXPECT_EQ(answer.reasoning, sample.thought);
  EXPECT_EQ(answer.calls.size(), sample.emitted_calls.size());
  for (size_t i = 0; i < std::min(answer.calls.size(), sample.emitted_calls.size()); ++i) {
    EXPECT_EQ(answer.calls[i].name, sample.emitted_calls[i].name);
    EXPECT_EQ(answer.calls[i].arguments, sample.emitted_calls[i].arguments);
    EXPECT_FALSE(answer.calls[i].id.empty());
  }
  const Heard whole = hear(parse(sample, {}, false));
  if (!sample.incomplete) {
    EXPECT_EQ(whole.content, answer.content);
    EXPECT_EQ(whole.reasoning, answer.reasoning);
    EXPECT_EQ(whole.calls, answer.calls);
  }

  const auto check_cuts = [&](const std::vector<size_t>& cuts) {
    ASSERT_EQ(hear(parse(sample, cuts, false)), whole) << ::testing::PrintToString(cuts);
    ASSERT_EQ(assemble(parse(sample, cuts, true)), answer) << ::testing::PrintToString(cuts);
  };
  const size_t size = sample.text.size();
  std::vector<size_t> all;
  for (size_t i = 1; i < size; ++i) all.push_back(i);
  check_cuts(all);
  for (size_t i = 0; i <= size; ++i) check_cuts({i});
  if (size < 200) {
    for (size_t i = 1; i < size; ++i) {
      for (size_t j = i + 1; j < size; ++j) check_cuts({i, j});
    }
  }
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<size_t> cuts;
    for (size_t at = random() % 12; at < size; at += 1 + random() % 12) cuts.push_back(at);
    check_cuts(cuts);
  }
}

void check_all(const std::vector<Sample>& samples) {
  for (const Sample& sample : samples) check(sample);
}

TEST(AnswerParserTest, QwenCallsAreJsonBetweenTags) {
  const std::string city = R"({"c":"Paris"})";
  check_all({
      {.text = "Hi<tool_call>\n{\"name\":\"w\",\"arguments\":{\"c\":\"Paris\"}}\n</tool_call>",
       .calls = kQwen,
       .content = "Hi",
       .emitted_calls = {{"w", city}}},
      {.text = "Hi \n<tool_call>\n{\"name\":\"w\",\"arguments\":{\"c\":\"Paris\"}}\n</tool_call>\n"
               "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n",
       .calls = kQwen,
       .content = "Hi",
       .emitted_calls = {{"w", city}, {"now", "{}"}}},
      {.text =
           "<tool_call>\n{\"name\": \"w\", \"arguments\": {\"c\": \"a </tool_call> \\\"<tool_call>"
           "{\", \"o\": {\"x\": [1, -2.5e3, null, true]}}}\n</tool_call>",
       .calls = kQwen,
       .content = "",
       .emitted_calls = {{"w",
                          "{\"c\": \"a </tool_call> \\\"<tool_call>{\", \"o\": {\"x\": [1, -2.5e3, "
                          "null, true]}}"}}},
      // Arguments before the name, none, null, and keys that are not a call's.
      {.text = "<tool_call>{\"arguments\": {\"c\": \"é\"}, \"id\": 7, \"name\": \"w\"}</tool_call>",
       .calls = kQwen,
       .content = "",
       .emitted_calls = {{"w", R"({"c": "é"})"}}},
      {.text = "<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"now\", "
               "\"arguments\": null}</tool_call>",
       .calls = kQwen,
       .content = "",
       .emitted_calls = {{"now", "{}"}, {"now", "{}"}}},
      // A list, a line break inside a string, a missing end, a missing brace.
      {.text = "<tool_call>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"w\", "
               "\"arguments\": {\"c\": \"a\nb\"}}]</tool_call>",
       .calls = kQwen,
       .content = "",
       .emitted_calls = {{"now", "{}"}, {"w", R"({"c": "a\nb"})"}}},
      {.text = "<tool_call>{\"name\":\"w\",\"arguments\":{\"c\":\"Paris\"}",
       .calls = kQwen,
       .content = "",
       .emitted_calls = {{"w", city}}},
      {.text = "<tool_call>{\"name\":\"w\",\"arguments\":{\"c\":\"Paris\"}</tool_call> done \n",
       .calls = kQwen,
       .content = " done \n",
       .emitted_calls = {{"w", city}}},
  });
}

TEST(AnswerParserTest, ProseThatNamesAMarkStaysProse) {
  check_all({
      {.text = "use <tool_call> tags", .calls = kQwen, .content = "use <tool_call> tags"},
      {.text = "use <tool_call> tags", .calls = kQwen3Coder, .content = "use <tool_call> tags"},
      {.text = "a <tool_call", .calls = kQwen, .content = "a <tool_call"},
      {.text = "<tool_call><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
       .calls = kQwen,
       .content = "",
       .emitted_calls = {{"now", "{}"}}},
      {.text = "<tool_call>{\"nam\": 1} </tool_call> trailing \n",
       .calls = kQwen,
       .content = "<tool_call>{\"nam\": 1} </tool_call> trailing \n"},
      {.text = "x < y and \"a\" <funct", .calls = kQwen3Coder, .content = "x < y and \"a\" <funct"},
      {.text = "the <function=unknown> tag",
       .calls = kQwen3Coder,
       .content = "the <function=unknown> tag"},
      {.text = "a <tool_call>{\"name\":\"w\",\"arguments\":{}}</tool_call>",
       .content = "a <tool_call>{\"name\":\"w\",\"arguments\":{}}</tool_call>"},
      {.text = "[1] see [link](x)", .calls = kPythonic, .content = "[1] see [link](x)"},
      {.text = "{\"title\": \"x\"}", .calls = kLlama3, .content = "{\"title\": \"x\"}"},
      {.text = "{\"name\": \"Alice\", \"age\": 3}",
       .calls = kLlama3,
       .content = "{\"name\": \"Alice\", \"age\": 3}"},
      {.text = "  \n ", .calls = kLlama3, .content = "  \n "},
      {.text = "日本 <｜tool▁ 語", .calls = kDeepseekV3, .content = "日本 <｜tool▁ 語"},
  });
}

TEST(AnswerParserTest, ABrokenCallIsTheTextTheModelWrote) {
  check_all({
      {.text = "Hi <tool_call>{\"name\":\"w\",\"arguments\":{\"c\": @Paris}}</tool_call>",
       .calls = kQwen,
       .content = "Hi <tool_call>{\"name\":\"w\",\"arguments\":{\"c\": @Paris}}</tool_call>",
       .incomplete = true},
      {.text = "[w(c='x', a=b)] no",
       .calls = kPythonic,
       .content = "[w(c='x', a=b)] no",
       .incomplete = true},
  });
}

// Its arguments end where the answer does, in streams and in whole answers alike.
TEST(AnswerParserTest, ACutCallKeepsWhatThereIsOfIt) {
  constexpr auto kCut = TextEnd::kCut;
  check_all({
      {.text = "Hi <tool_call>{\"name\":\"w\",\"arguments\":{\"c\":\"Par",
       .calls = kQwen,
       .content = "Hi",
       .emitted_calls = {{"w", "{\"c\":\"Par"}},
       .end = kCut},
      {.text = "<tool_call>\n<function=w>\n<parameter=c>\nPar",
       .calls = kQwen3Coder,
       .content = "",
       .emitted_calls = {{"w", "{\"c\": \"Par"}},
       .end = kCut},
      {.text = "<tool_call>\n<function=w>\n<parameter=a>\n5\n</parameter>",
       .calls = kQwen3Coder,
       .content = "",
       .emitted_calls = {{"w", "{\"a\": 5"}},
       .end = kCut},
      {.text = "[w(c='x', a=",
       .calls = kPythonic,
       .content = "",
       .emitted_calls = {{"w", R"({"c": "x")"}},
       .end = kCut},
      {.text = "<tool_call>w\n<arg_key>c</arg_key>\n<arg_value>Par</arg_va",
       .calls = kGlm,
       .content = "",
       .emitted_calls = {{"w", R"({"c": "Par)"}},
       .end = kCut},
      // Before its arguments nothing of it is shown.
      {.text = "Hi\n<tool_call>\n{\"name\": \"w\"", .calls = kQwen, .content = "Hi", .end = kCut},
      {.text = "Hi <tool_c", .calls = kQwen, .content = "Hi", .end = kCut},
      {.text = "<|channel|>commentary to=functions.w <|constrain|>js",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "",
       .end = kCut},
      {.text = "Hm</thi",
       .calls = kQwen,
       .reasoning = kThink,
       .content = "",
       .thought = "Hm",
       .inside = true,
       .end = kCut},
  });
}

// A cut answer ends with no piece of a mark, wherever the mark may stand.
TEST(AnswerParserTest, ACutMarkIsNoText) {
  constexpr auto kGranite = ReasoningFormat::kGranite;
  constexpr auto kCohere = ReasoningFormat::kCohere;
  const auto cut = [](std::string text, ReasoningFormat format, std::string content,
                      std::string thought) {
    return Sample{.text = std::move(text),
                  .reasoning = format,
                  .content = std::move(content),
                  .thought = std::move(thought),
                  .end = TextEnd::kCut};
  };
  check_all({
      cut("<think>Hm</think>\n<resp", kGranite, "", "Hm"),
      cut("<think>Hm</think>\n\n<r", kGranite, "", "Hm"),
      cut("<think>Hm\n<respon", kGranite, "", "Hm\n"),
      cut("<resp", kGranite, "", ""),
      cut("<think>Hm</think>\n<response>Hi</respon", kGranite, "Hi", "Hm"),
      cut("<|START_THINKING|>Hm<|START_TE", kCohere, "", "Hm"),
      cut("<|START_THINKING|>Hm<|END_THINKING|><|START_RES", kCohere, "", "Hm"),
      cut("<|START_TEXT|>Hi<|END_TE", kCohere, "Hi", ""),
      cut("</thi", kThink, "", ""),
      cut("<think>Hm</think></thi", kThink, "", "Hm"),
      cut("<think>Hm</think>\n<thi", kThink, "", "Hm"),
      cut("[THINK]Hm[/THINK][/THI", ReasoningFormat::kMistral, "", "Hm"),
      cut("◁think▷Hm◁/think▷◁/thi", ReasoningFormat::kKimi, "", "Hm"),
      cut("<think>Hm</think>\n<respect>", kGranite, "<respect>", "Hm"),
  });
}

TEST(AnswerParserTest, Qwen3CoderValuesHaveTheTypesOfTheSchema) {
  const auto call = [](std::string parameters) {
    return "<tool_call>\n<function=w>\n" + parameters + "</function>\n</tool_call>";
  };
  const auto parameter = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const auto sample = [&](const std::string& parameters, const std::string& json) {
    return Sample{.text = call(parameters),
                  .calls = kQwen3Coder,
                  .content = "",
                  .emitted_calls = {{"w", json}}};
  };
  check_all({
      sample(parameter("a", "5") + parameter("b", "x < y\n</b>") + parameter("c", "é\t\"\\"),
             R"({"a": 5, "b": "x < y\n</b>", "c": "é\t\"\\"})"),
      sample(parameter("l", R"(["1"])"), R"({"l": ["1"]})"),
      sample("", "{}"),
      sample(parameter("a", "05") + parameter("n", "2.50") + parameter("y", "True") +
                 parameter("u", "7") + parameter("m", "null") + parameter("k", "NULL"),
             R"({"a": 5, "n": 2.50, "y": true, "u": 7, "m": null, "k": null})"),
      sample(parameter("a", "five") + parameter("n", ".5") + parameter("y", "yes") +
                 parameter("u", "seven") + parameter("m", "nullable") + parameter("k", "3"),
             R"({"a": "five", "n": 0.5, "y": false, "u": "seven", "m": "nullable", "k": 3})"),
      sample(parameter("o", "{'x': True, 'y': (1, None)}") + parameter("l", "[1, oops]"),
             R"({"o": {"x": true, "y": [1, null]}, "l": "[1, oops]"})"),
      sample(parameter("c", "null") + parameter("z", "1"), R"({"c": null, "z": "1"})"),
      // One line break on each side is the format's, what looks like an end tag is text, of two
      // parameters the first counts, a bad name is dropped.
      sample(parameter("c", "\na\n"), R"({"c": "\na\n"})"),
      sample(parameter("c", "</parameter> x </function"), R"({"c": "</parameter> x </function"})"),
      sample(parameter("c", "1") + parameter("c", "2") + parameter("bad name", "3"),
             R"({"c": "1"})"),
      sample("<parameter=c></parameter>", R"({"c": ""})"),
      sample("<parameter=c>\n</parameter>", R"({"c": ""})"),
      {.text = "So: <function=now>\n</function> ",
       .calls = kQwen3Coder,
       .content = "So:",
       .emitted_calls = {{"now", "{}"}}},
      {.text = "<tool_call><function=other><parameter=p>1</parameter></tool_call>!",
       .calls = kQwen3Coder,
       .content = "!",
       .emitted_calls = {{"other", R"({"p": "1"})"}}},
  });
}

TEST(AnswerParserTest, GlmCallsAreKeysAndValues) {
  check_all({
      {.text = "Let me see.\n<tool_call>w\n<arg_key>c</arg_key>\n<arg_value>Paris</arg_value>\n"
               "<arg_key>a</arg_key>\n<arg_value>3</arg_value>\n<arg_key>o</arg_key>\n"
               "<arg_value>{\"x\": [1]}</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
       .calls = kGlm,
       .content = "Let me see.",
       .emitted_calls = {{"w", R"({"c": "Paris", "a": 3, "o": {"x": [1]}})"}, {"now", "{}"}}},
      {.text = "<tool_call>w<arg_key>c</arg_key><arg_value> a\n</arg_value> b</arg_value>"
               "</tool_call>",
       .calls = kGlm,
       .content = "",
       .emitted_calls = {{"w", R"({"c": " a\n</arg_value> b"})"}}},
  });
}

TEST(AnswerParserTest, DeepseekCallsAreFramedByMarks) {
  const std::string two =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>w\n```json\n{\"c\": "
      "\"Paris\"}\n"
      "```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  const std::string v31 =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>w<｜tool▁sep｜>{\"c\": "
      "\"Paris\"}<｜tool▁call▁end｜>"
      "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  const std::vector<Call> emitted = {{"w", R"({"c": "Paris"})"}, {"now", "{}"}};
  check_all(
      {{.text = "Ok\n" + two, .calls = kDeepseekV3, .content = "Ok", .emitted_calls = emitted},
       {.text = "Ok\n" + v31, .calls = kDeepseekV3, .content = "Ok", .emitted_calls = emitted},
       {.text = "Hm.</think>" + v31,
        .calls = kDeepseekV3,
        .reasoning = kThink,
        .content = "",
        .emitted_calls = emitted,
        .thought = "Hm.",
        .inside = true}});
}

TEST(AnswerParserTest, DeepseekV32CallsAreTagged) {
  const std::vector<Call> emitted = {{"w", R"({"c": "a < b", "a": 5, "o": {"x": 1}})"}};
  const std::string parameters =
      "<｜DSML｜parameter name=\"c\" string=\"true\">a < b</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"a\" string=\"false\">5</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"o\" string=\"false\">{\"x\": 1}</｜DSML｜parameter>\n";
  check_all({
      {.text = "Ok\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"w\">\n" + parameters +
               "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n"
               "</｜DSML｜function_calls>",
       .calls = kDeepseekV32,
       .content = "Ok",
       .emitted_calls = {emitted[0], {"now", "{}"}}},
      {.text =
           "<function_calls><invoke name=\"w\"><parameter name=\"c\" string=\"true\">x</parameter>"
           "</invoke></function_calls>",
       .calls = kDeepseekV32,
       .content = "",
       .emitted_calls = {{"w", R"({"c": "x"})"}}},
      {.text = "<｜DSML｜function_calls><｜DSML｜invoke name=\"w\">{\"c\": \"</invoke>\"}"
               "</｜DSML｜invoke></｜DSML｜function_calls>",
       .calls = kDeepseekV32,
       .content = "",
       .emitted_calls = {{"w", R"({"c": "</invoke>"})"}}},
  });
}

TEST(AnswerParserTest, LlamaCallsStandAtTheStartOrAfterTheirTag) {
  const std::vector<Call> emitted = {{"w", R"({"c": "Paris"})"}};
  check_all({
      {.text = R"({"name": "w", "parameters": {"c": "Paris"}})",
       .calls = kLlama3,
       .content = "",
       .emitted_calls = emitted},
      {.text = "\n {\"type\": \"function\", \"name\": \"w\", \"parameters\": {\"c\": \"Paris\"}}; "
               "{\"name\": \"now\", \"parameters\": {}}",
       .calls = kLlama3,
       .content = "",
       .emitted_calls = {emitted[0], {"now", "{}"}}},
      {.text = "Sure <|python_tag|>{\"name\": \"w\", \"arguments\": {\"c\": \"Paris\"}}",
       .calls = kLlama3,
       .content = "Sure",
       .emitted_calls = emitted},
      {.text = "Sure {\"name\": \"w\", \"parameters\": {\"c\": \"Paris\"}}",
       .calls = kLlama3,
       .content = "Sure {\"name\": \"w\", \"parameters\": {\"c\": \"Paris\"}}"},
      {.text = "<|python_tag|>print(1)", .calls = kLlama3, .content = "print(1)"},
  });
}

TEST(AnswerParserTest, MistralCallsAreAListOrNamedOneByOne) {
  const std::vector<Call> emitted = {{"w", R"({"c": "[x]"})"}, {"now", "{}"}};
  check_all({
      {.text = "[TOOL_CALLS] [{\"name\": \"w\", \"arguments\": {\"c\": \"[x]\"}, \"id\": "
               "\"abcDEF123\"}, {\"name\": \"now\", \"arguments\": {}}]",
       .calls = kMistral,
       .content = "",
       .emitted_calls = emitted},
      {.text = "Ok [TOOL_CALLS]w[ARGS]{\"c\": \"[x]\"}[TOOL_CALLS]now[CALL_ID]abcDEF123[ARGS]{}",
       .calls = kMistral,
       .content = "Ok",
       .emitted_calls = emitted},
      {.text = "[TOOL_CALLS]w{\"c\": \"[x]\"}[TOOL_CALLS]now{}",
       .calls = kMistral,
       .content = "",
       .emitted_calls = emitted},
      {.text = "[THINK]why[/THINK]because",
       .calls = kMistral,
       .reasoning = ReasoningFormat::kMistral,
       .content = "because",
       .thought = "why"},
  });
}

TEST(AnswerParserTest, PythonicCallsAreAListOfCalls) {
  check_all({
      {.text = "[w(c='it\\'s, ok)', a=5, l=[1, (2,), {'x': None}]), now()]",
       .calls = kPythonic,
       .content = "",
       .emitted_calls = {{"w", R"JSON({"c": "it's, ok)", "a": 5, "l": [1, [2], {"x": null}]})JSON"},
                         {"now", "{}"}}},
      {.text = "<|python_start|>[a.b-c(y=True)]<|python_end|>",
       .calls = kPythonic,
       .content = "",
       .emitted_calls = {{"a.b-c", R"({"y": true})"}}},
  });
}

TEST(AnswerParserTest, GemmaCallsHaveKeysWithoutQuotes) {
  const auto call = [](const std::string& arguments) {
    return "<|tool_call>call:w" + arguments + "<tool_call|>";
  };
  const auto sample = [&](const std::string& arguments, const std::string& json) {
    return Sample{
        .text = call(arguments), .calls = kGemma4, .content = "", .emitted_calls = {{"w", json}}};
  };
  check_all({
      {.text = "Ok\n" + call("{c:<|\"|>Paris<|\"|>,a:5}") + "<|tool_call>call:now{}<tool_call|>",
       .calls = kGemma4,
       .content = "Ok",
       .emitted_calls = {{"w", R"({"c":"Paris","a":5})"}, {"now", "{}"}}},
      sample("{a:-5,n:1.5e3,y:true,k:null,m:None,l:[1,<|\"|>a<|\"|>,[]],o:{x:{deep:[{}]},z:false}}",
             R"({"a":-5,"n":1.5e3,"y":true,"k":null,"m":null,"l":[1,"a",[]],)"
             R"("o":{"x":{"deep":[{}]},"z":false}})"),
      // A text is what stands between its marks: quotes, brackets, backslashes, marks.
      sample("{c:<|\"|>\"a\\n\" 'b'\n{x:1},a:2]}<|\"|>,a:3}",
             R"({"c":"\"a\\n\" 'b'\n{x:1},a:2]}","a":3})"),
      sample("{c:<|\"|>}<tool_call|> <|tool_call>call:now{}<tool_call|><|\"|>}",
             R"({"c":"}<tool_call|> <|tool_call>call:now{}<tool_call|>"})"),
      sample("{c:<|\"|><|\"|>,b:<|\"|>é<b<|\"|>}", R"({"c":"","b":"é<b"})"),
      sample("{<|\"|>c<|\"|>:\"a\\\"b\", l:['x']}", R"({"c":"a\"b", "l":["x"]})"),
      {.text = "<|tool_call>call:other{p:<|\"|>1<|\"|>}<tool_call|>!",
       .calls = kGemma4,
       .content = "!",
       .emitted_calls = {{"other", R"({"p":"1"})"}}},
      {.text = "Hi <|tool_call>call:w{c:<|\"|>Par",
       .calls = kGemma4,
       .content = "Hi",
       .emitted_calls = {{"w", R"({"c":"Par)"}},
       .end = TextEnd::kCut},
      {.text = "<|tool_call>call:w{c:<|\"|>Paris<|\"|>,a:5",
       .calls = kGemma4,
       .content = "",
       .emitted_calls = {{"w", R"({"c":"Paris","a":)"}},
       .end = TextEnd::kCut},
      {.text = call("{c:[}") + " x",
       .calls = kGemma4,
       .content = " x",
       .emitted_calls = {{"w", R"({"c":[]})"}}},
      {.text = "a <|tool_call>call:w{c:=:} b",
       .calls = kGemma4,
       .content = "a b",
       .emitted_calls = {{"w", R"({"c":"=:"})"}}},
      {.text = "call: w", .calls = kGemma4, .content = "call: w"},
      {.text = "<|channel>thought\nHm.\n<channel|>Yes<|tool_call>call:now{}<tool_call|>",
       .calls = kGemma4,
       .reasoning = ReasoningFormat::kGemma,
       .content = "Yes",
       .emitted_calls = {{"now", "{}"}},
       .thought = "Hm.\n"},
      {.text = "<|channel>thought\n<channel|>Yes, <|channel> no",
       .reasoning = ReasoningFormat::kGemma,
       .content = "Yes, <|channel> no"},
      {.text = "<|channel>thou",
       .reasoning = ReasoningFormat::kGemma,
       .content = "",
       .end = TextEnd::kCut},
  });
}

TEST(AnswerParserTest, MinimaxAndSeedCallsAreTagged) {
  const std::vector<Call> emitted = {{"w", R"({"c": "a < b\n", "a": 5, "o": {"x": 1}})"},
                                     {"now", "{}"}};
  check_all({
      {.text = "Ok\n<minimax:tool_call>\n<invoke name=\"w\">\n<parameter name=\"c\">a < b\n"
               "</parameter>\n<parameter name=\"a\">5</parameter>\n<parameter name=\"o\">{\"x\": 1}"
               "</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
       .calls = kMinimaxM2,
       .content = "Ok",
       .emitted_calls = emitted},
      {.text = "Hm</think><minimax:tool_call><invoke name=\"other\"><parameter name=\"p\">"
               "</invoke></minimax:tool_call> </parameter></invoke></minimax:tool_call>",
       .calls = kMinimaxM2,
       .reasoning = kThink,
       .content = "",
       .emitted_calls = {{"other", R"({"p": "</invoke></minimax:tool_call> "})"}},
       .thought = "Hm",
       .inside = true},
      {.text = "the <minimax:tool_call> tag, <minimax: x",
       .calls = kMinimaxM2,
       .content = "the <minimax:tool_call> tag, <minimax: x"},
      {.text =
           "<seed:think>Hm</seed:think>\nOk\n<seed:tool_call>\n<function=w>\n<parameter=c>a < b\n"
           "</parameter>\n<parameter=a>5</parameter>\n<parameter=o>{\"x\": 1}</parameter>\n"
           "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n"
           "</seed:tool_call>",
       .calls = kSeedOss,
       .reasoning = ReasoningFormat::kSeed,
       .content = "Ok",
       .emitted_calls = emitted,
       .thought = "Hm"},
      {.text = "<seed:tool_call>\n<function=other>\n<parameter=p></seed:tool_call></function>"
               "</parameter>\n</function>\n</seed:tool_call>",
       .calls = kSeedOss,
       .content = "",
       .emitted_calls = {{"other", R"({"p": "</seed:tool_call></function>"})"}}},
      {.text = "Hi <seed:tool_c", .calls = kSeedOss, .content = "Hi", .end = TextEnd::kCut},
  });
}

TEST(AnswerParserTest, ListsOfObjectsStandBehindTheirMark) {
  const std::string two =
      R"([{"name": "w", "arguments": {"c": "]</TOOLCALL> <|tool_call|>[{", "o": {"x": [{}]}}}, )"
      R"({"name": "now", "arguments": {}}])";
  const std::vector<Call> emitted = {
      {"w", R"({"c": "]</TOOLCALL> <|tool_call|>[{", "o": {"x": [{}]}})"}, {"now", "{}"}};
  check_all({
      {.text = "Ok\n<TOOLCALL>" + two + "</TOOLCALL>",
       .calls = kNemotronV2,
       .content = "Ok",
       .emitted_calls = emitted},
      {.text = "<TOOLCALL>[{\"name\": \"w\", \"arguments\": \"{\\\"a\\\": 1}\"}]</TOOLCALL> Ok",
       .calls = kNemotronV2,
       .content = " Ok",
       .emitted_calls = {{"w", R"({"a": 1})"}}},
      {.text = "The <TOOLCALL> tag", .calls = kNemotronV2, .content = "The <TOOLCALL> tag"},
      {.text = "<|tool_call|>" + two, .calls = kGranite, .content = "", .emitted_calls = emitted},
      {.text = "<think>Hm</think>\n\n<response>Yes <b>.</response>",
       .calls = kGranite,
       .reasoning = ReasoningFormat::kGranite,
       .content = "Yes <b>.",
       .thought = "Hm"},
      {.text = "<think>Hm</think>A <response> </response>",
       .calls = kGranite,
       .reasoning = ReasoningFormat::kGranite,
       .content = "A <response> </response>",
       .thought = "Hm"},
      {.text =
           "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": "
           "\"0\", \"tool_name\": \"w\", \"parameters\": {\"c\": \"\\n]<|END_ACTION|>\"}},\n    "
           "{\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]"
           "<|END_ACTION|>",
       .calls = kCohere,
       .reasoning = ReasoningFormat::kCohere,
       .content = "",
       .emitted_calls = {{"w", R"({"c": "\n]<|END_ACTION|>"})"}, {"now", "{}"}},
       .thought = "I look."},
      {.text = "<|START_RESPONSE|>Yes (\"so\")<|END_RESPONSE|>",
       .calls = kCohere,
       .reasoning = ReasoningFormat::kCohere,
       .content = "Yes (\"so\")"},
      {.text = "Hm<|END_THINKING|><|START_TEXT|>Yes<|END_TEXT|>",
       .reasoning = ReasoningFormat::kCohere,
       .content = "Yes",
       .thought = "Hm",
       .inside = true},
      {.text = "<|tool_call_start|>[w(c='a]<|tool_call_end|>', o={'x': [{}]}), now()]"
               "<|tool_call_end|>Ok",
       .calls = kLfm2,
       .content = "Ok",
       .emitted_calls = {{"w", R"({"c": "a]<|tool_call_end|>", "o": {"x": [{}]}})"},
                         {"now", "{}"}}},
      {.text = "[other(x=1)]", .calls = kLfm2, .content = "[other(x=1)]"},
      {.text = "<|tool_call_start|>[other(x=1)]<|tool_call_end|>",
       .calls = kLfm2,
       .content = "",
       .emitted_calls = {{"other", R"({"x": 1})"}}},
      {.text = "Hi <|tool_call_sta", .calls = kLfm2, .content = "Hi", .end = TextEnd::kCut},
  });
}

TEST(AnswerParserTest, KimiCallsBringTheirIds) {
  const Sample sample{
      .text =
          "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.w:3"
          "<|tool_call_argument_begin|>{\"c\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>now"
          "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
      .calls = kKimiK2,
      .content = "Ok",
      .emitted_calls = {{"w", R"({"c": "Paris"})"}, {"now", "{}"}}};
  check(sample);
  const AssembledAnswer answer = assemble(parse(sample, {}, false));
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].id, "functions.w:3");
  EXPECT_EQ(answer.calls[1].id, "functions.now:1");
  check({.text = "◁think▷Hm◁/think▷\nYes",
         .reasoning = ReasoningFormat::kKimi,
         .content = "Yes",
         .thought = "Hm"});
}

TEST(AnswerParserTest, HarmonyMessagesGoWhereTheirChannelSays) {
  const std::string thinking = "<|channel|>analysis<|message|>Hm <b>.<|end|>";
  check_all({
      {.text = thinking + "<|start|>assistant<|channel|>final<|message|>Hi\n<|return|>",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "Hi\n",
       .thought = "Hm <b>."},
      {.text = thinking +
               "<|start|>assistant<|channel|>commentary<|message|>Wait.<|end|><|start|>"
               "assistant<|channel|>commentary to=functions.w <|constrain|>json<|message|>"
               "{\"c\": \"<|call|>\"}<|call|>",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "Wait.",
       .emitted_calls = {{"w", R"({"c": "<|call|>"})"}},
       .thought = "Hm <b>."},
      {.text = " to=functions.now<|channel|>commentary json<|message|>{}",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "",
       .emitted_calls = {{"now", "{}"}}},
      {.text = "<|channel|>commentary to=functions.w json<|message|>{\"c\": @Paris}",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "<|channel|>commentary to=functions.w json<|message|>{\"c\": @Paris}",
       .incomplete = true},
      {.text = "<|channel|>commentary to=functions.w json<|message|> \n{\"c\": @Paris}",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "<|channel|>commentary to=functions.w json<|message|> \n{\"c\": @Paris}",
       .incomplete = true},
      {.text = "<|channel|>commentary to=functions. json<|message|>{}",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "{}"},
      {.text = "Plain text.",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "Plain text."},
      {.text = "<|channel|>final<|message|>Hi<|end|><|start|>assis",
       .calls = ToolCallFormat::kHarmony,
       .reasoning = ReasoningFormat::kHarmony,
       .content = "Hi"},
  });
}

TEST(AnswerParserTest, WordsThatAreNoHarmonyHeaderAreContent) {
  const std::string rest(2000, 'x');
  for (const auto& [mark, shown] : std::vector<std::pair<std::string, std::string>>{
           {"<|channel|>", ""},
           {"<|start|>", ""},
           {" to=", " to="},
           {"\n <|channel|>", ""},
           {std::string(1020, ' ') + "<|channel|>", std::string(1020, ' ')}}) {
    SCOPED_TRACE(mark);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{4000}}) {
      const auto parser = make_answer_parser({.reasoning = ReasoningFormat::kHarmony});
      const std::string text = mark + rest + "<|channel|>final<|message|>Hi";
      AnswerDeltas deltas;
      for (size_t at = 0; at < text.size(); at += piece) {
        parser->push(std::string_view(text).substr(at, piece), deltas);
      }
      parser->finish(TextEnd::kStopped, deltas);
      EXPECT_TRUE(assemble(deltas).content == shown + rest + "\n\nHi") << piece;
    }
  }
}

TEST(AnswerParserTest, ReasoningEndsAtItsTag) {
  check_all({
      {.text = "<think>\nHm.\n</think>\n\nYes",
       .reasoning = kThink,
       .content = "Yes",
       .thought = "Hm.\n"},
      {.text = "Hm. </thin </think>\nYes",
       .reasoning = kThink,
       .content = "Yes",
       .thought = "Hm. </thin ",
       .inside = true},
      {.text = " \n<think><think>Hm", .reasoning = kThink, .content = "", .thought = "Hm"},
      {.text = "No <think> tag", .reasoning = kThink, .content = "No <think> tag"},
      {.text = "<thin", .reasoning = kThink, .content = "<thin"},
      {.text = "<think></think>Yes", .reasoning = kThink, .content = "Yes"},
      {.text = "日本</think>語",
       .reasoning = kThink,
       .content = "語",
       .thought = "日本",
       .inside = true},
  });
}

TEST(AnswerParserTest, ACallInsideReasoningEndsIt) {
  check_all({
      {.text = "I use <tool_call> now\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n"
               "</tool_call>",
       .calls = kQwen,
       .reasoning = kThink,
       .content = "",
       .emitted_calls = {{"now", "{}"}},
       .thought = "I use <tool_call> now\n",
       .inside = true},
      {.text = "Hm\n</think>\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       .calls = kQwen3Coder,
       .reasoning = kThink,
       .content = "",
       .emitted_calls = {{"now", "{}"}},
       .thought = "Hm\n",
       .inside = true},
  });
}

AssembledAnswer parse_with(AnswerParserOptions options, std::string_view text) {
  const auto parser = make_answer_parser(std::move(options));
  AnswerDeltas deltas;
  parser->push(text, deltas);
  parser->finish(TextEnd::kStopped, deltas);
  return assemble(std::move(deltas));
}

TEST(AnswerParserTest, ReasoningThatIsNotSeparatedKeepsItsTags) {
  const std::string text = "<think>\nHm</think>\nYes";
  EXPECT_EQ(parse_with({.reasoning = kThink, .separate_reasoning = false}, text),
            (AssembledAnswer{.content = text}));
}

TEST(AnswerParserTest, WithoutParallelCallsTheFirstCounts) {
  AnswerParserOptions options{
      .tool_calls = kQwen, .tools = tools(), .parallel_tool_calls = false, .id_seed = "x"};
  const AssembledAnswer answer = parse_with(
      options,
      "<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"w\"}</tool_call>!");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].name, "now");
  EXPECT_EQ(answer.content, "!");
}

TEST(AnswerParserTest, IdsAreTheSameForTheSameSeed) {
  EXPECT_THAT(make_call_id(kQwen, "a", "f", 0), ::testing::MatchesRegex("call_[0-9a-f]{24}"));
  EXPECT_EQ(make_call_id(kQwen, "a", "f", 0), make_call_id(kQwen, "a", "f", 0));
  EXPECT_NE(make_call_id(kQwen, "a", "f", 0), make_call_id(kQwen, "a", "f", 1));
  EXPECT_NE(make_call_id(kQwen, "a", "f", 0), make_call_id(kQwen, "b", "f", 0));
  EXPECT_THAT(make_call_id(kMistral, "a", "f", 0), ::testing::MatchesRegex("[0-9A-Za-z]{9}"));
  EXPECT_EQ(make_call_id(kKimiK2, "a", "f", 2), "functions.f:2");
}

// A string argument is emitted piece by piece, not at its end.
TEST(AnswerParserTest, ALongArgumentArrivesWhileItIsWritten) {
  for (const auto& [format, begin] :
       {std::pair{kQwen, "<tool_call>{\"name\": \"write_file\", \"arguments\": {\"content\": \""},
        std::pair{kQwen3Coder, "<tool_call><function=write_file><parameter=content>\n"},
        std::pair{kGlm, "<tool_call>write_file\n<arg_key>content</arg_key><arg_value>"},
        std::pair{kMinimaxM2,
                  "<minimax:tool_call><invoke name=\"write_file\"><parameter name=\"content\">"},
        std::pair{kSeedOss, "<seed:tool_call><function=write_file><parameter=content>"},
        std::pair{kGemma4, "<|tool_call>call:write_file{content:<|\"|>"},
        std::pair{kCohere,
                  "<|START_ACTION|>[{\"tool_name\": \"write_file\", \"parameters\": "
                  "{\"content\": \""},
        std::pair{kGranite,
                  "<|tool_call|>[{\"name\": \"write_file\", \"arguments\": {\"content\": \""}}) {
    const auto parser = make_answer_parser({.tool_calls = format, .tools = tools()});
    AnswerDeltas deltas;
    parser->push(begin, deltas);
    for (int line = 0; line < 100; ++line) {
      deltas.clear();
      parser->push("a line of text ", deltas);
      ASSERT_EQ(deltas.size(), 1u) << line;
      EXPECT_GE(std::get<ArgumentsDelta>(deltas[0]).json.size(), 15u) << line;
    }
  }
}

// Text that could be a call's beginning for ever is given up after a while, wherever it is cut.
TEST(AnswerParserTest, HoldsBackABoundedNumberOfBytes) {
  const std::string endless[] = {
      "<tool_call>" + std::string(100000, ' '),
      "<tool_call>{\"name\": \"" + std::string(100000, 'x'),
      "<tool_call>{\"arguments\": {\"c\": \"" + std::string(100000, 'x'),
      "a" + std::string(100000, ' ') + "b",
  };
  for (const std::string& text : endless) {
    for (const size_t step : {size_t{100}, size_t{4096}, text.size()}) {
      const auto parser = make_answer_parser({.tool_calls = kQwen, .tools = tools()});
      AnswerDeltas deltas;
      for (size_t at = 0; at < text.size(); at += step) {
        parser->push(std::string_view(text).substr(at, step), deltas);
      }
      EXPECT_GT(assemble(deltas).content.size(), text.size() - (17 << 10));
      parser->finish(TextEnd::kStopped, deltas);
      EXPECT_EQ(assemble(deltas).content, text);
    }
  }
}

TEST(AnswerParserTest, TheMarksThatEndCallsAreKnown) {
  const struct {
    ToolCallFormat format;
    std::vector<std::string_view> ends;
    std::vector<std::string_view> others;
  } cases[] = {
      {kQwen, {"</tool_call>", "\n</tool_call>\n"}, {"</function>", "<tool_call>"}},
      {kQwen3Coder,
       {"</tool_call>", "</function>", " </function>\n"},
       {"</parameter>", "</invoke>"}},
      {kGlm, {"</tool_call>"}, {"</function>", "</arg_value>"}},
      {kSeedOss, {"</seed:tool_call>", "</function>"}, {"</parameter>", "</tool_call>"}},
      {kDeepseekV32,
       {"</｜DSML｜invoke>", "</invoke>", "</function_calls>", "</｜DSML｜function_calls>"},
       {"</parameter>", "</｜DSML｜parameter>"}},
      {kMinimaxM2, {"</minimax:tool_call>", "</invoke>"}, {"</parameter>", "</function>"}},
      {kGemma4, {"<tool_call|>"}, {"<|tool_call>", "}"}},
      {kNone, {}, {"</tool_call>"}},
  };

  for (const auto& [format, ends, others] : cases) {
    const auto parser = make_answer_parser({.tool_calls = format, .tools = tools()});
    for (const std::string_view end : ends) EXPECT_TRUE(parser->is_call_end(end)) << end;
    for (const std::string_view other : others) EXPECT_FALSE(parser->is_call_end(other)) << other;
  }
}

TEST(AnswerParserTest, ThePartSaysWhereTheTextStands) {
  using Part = AnswerParser::Part;
  AnswerDeltas deltas;
  const auto parser = make_answer_parser({.reasoning = kThink});
  EXPECT_EQ(parser->part(), Part::kUndecided);
  parser->push("<thi", deltas);
  EXPECT_EQ(parser->part(), Part::kUndecided);
  parser->push("nk>a", deltas);
  EXPECT_EQ(parser->part(), Part::kReasoning);
  parser->push("</think>", deltas);
  EXPECT_EQ(parser->part(), Part::kContent);
  EXPECT_EQ(make_answer_parser({.reasoning = kThink, .starts_in_reasoning = true})->part(),
            Part::kReasoning);
  EXPECT_EQ(make_answer_parser({})->part(), Part::kContent);
}

}  // namespace
}  // namespace heddle::parsers
