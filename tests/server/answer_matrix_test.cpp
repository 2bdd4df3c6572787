// SPDX-License-Identifier: Apache-2.0
// Every format of calls and of reasoning through every chat API, streamed and whole, ended by the
// model and cut after each token.
#include <array>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/compiler.h"
#include "parsers/json_scanner.h"
#include "server/scripted_fixture.h"

namespace heddle::server {
namespace {

using parsers::ReasoningFormat;
using parsers::ToolCallFormat;

struct MatrixRow {
  std::string name;
  ToolCallFormat calls = ToolCallFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  std::string script;
  std::string thought;  // what clients get
  std::string text;
  std::vector<ScriptedCall> emitted = {};
  std::vector<std::string> special_tokens = {};

  friend void PrintTo(const MatrixRow& row, std::ostream* out) { *out << row.name; }
};

Json matrix_tools() {
  return Json::array({scripted_tool("get_weather", {{"city", {{"type", "string"}}},
                                                    {"days", {{"type", "integer"}}}}),
                      scripted_tool("now")});
}

std::vector<MatrixRow> matrix_rows() {
  const std::vector<ScriptedCall> both = {{"get_weather", R"({"city":"Zürich","days":3})"},
                                          {"now", "{}"}};
  const std::string thinking = "<think>\nHm, well.\n</think>\n\nI look.\n";
  const std::string thought = "Hm, well.\n";
  const std::string weather =
      R"({"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}})";
  const std::string arguments = R"({"city": "Zürich", "days": 3})";
  using enum ToolCallFormat;
  constexpr auto kThink = ReasoningFormat::kThink;
  constexpr auto kHarmonyReasoning = ReasoningFormat::kHarmony;
  std::vector<MatrixRow> rows = {
      {"Qwen", kQwen, kThink,
       thinking + "<tool_call>\n" + weather +
           "\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       thought, "I look.", both},
      {"Qwen3Coder", kQwen3Coder, kThink,
       thinking + "<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n"
                  "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
                  "<function=now>\n</function>\n</tool_call>",
       thought, "I look.", both},
      {"Glm", kGlm, kThink,
       thinking +
           "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n"
           "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n"
           "</tool_call>",
       thought, "I look.", both},
      {"DeepseekV3", kDeepseekV3, kThink,
       thinking + "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" +
           arguments +
           "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
           "<｜tool▁calls▁end｜>",
       thought, "I look.", both},
      {"DeepseekV32", kDeepseekV32, kThink,
       thinking + "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
                  "<｜DSML｜parameter name=\"city\" string=\"true\">Zürich</｜DSML｜parameter>\n"
                  "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
                  "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n"
                  "</｜DSML｜function_calls>",
       thought, "I look.", both},
      {"Kimi", kKimiK2, kThink,
       thinking +
           "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
           "<|tool_call_argument_begin|>" +
           arguments +
           "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
           "<|tool_call_end|><|tool_calls_section_end|>",
       thought, "I look.", both},
      {"Llama3",
       kLlama3,
       ReasoningFormat::kNone,
       "I look.\n<|python_tag|>{\"name\": \"get_weather\", \"parameters\": " + arguments +
           "}; {\"name\": \"now\", \"parameters\": {}}",
       "",
       "I look.",
       both,
       {"<|python_tag|>"}},
      {"Mistral",
       kMistral,
       ReasoningFormat::kMistral,
       "[THINK]Hm, well.\n[/THINK]I look.[TOOL_CALLS]get_weather[ARGS]" + arguments +
           "[TOOL_CALLS]now[ARGS]{}",
       thought,
       "I look.",
       both,
       {"[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"}},
      {"Pythonic",
       kPythonic,
       ReasoningFormat::kNone,
       "<|python_start|>[get_weather(city='Zürich', days=3), now()]<|python_end|>",
       "",
       "",
       both,
       {"<|python_start|>", "<|python_end|>"}},
      {"Harmony",
       kHarmony,
       kHarmonyReasoning,
       "<|channel|>analysis<|message|>Hm, well.\n<|end|><|start|>assistant<|channel|>commentary"
       "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>" +
           arguments +
           "<|call|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json"
           "<|message|>{}<|call|>",
       thought,
       "I look.",
       both,
       {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>", "<|call|>"}},
  };
  const std::string text_mark = "<|\"|>";
  const std::string invoked =
      "<invoke name=\"get_weather\">\n<parameter name=\"city\">Zürich</parameter>\n"
      "<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n";
  const std::string listed = "[" + weather + ", {\"name\": \"now\", \"arguments\": {}}]";
  rows.insert(
      rows.end(),
      {{"Gemma4",
        kGemma4,
        ReasoningFormat::kGemma,
        "<|channel>thought\nHm, well.\n<channel|>I look.<|tool_call>call:get_weather{city:" +
            text_mark + "Zürich" + text_mark +
            ",days:3}<tool_call|><|tool_call>call:now{}<tool_call|>",
        thought,
        "I look.",
        both,
        {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", text_mark}},
       {"MinimaxM2", kMinimaxM2, kThink,
        thinking + "<minimax:tool_call>\n" + invoked + "</minimax:tool_call>", thought, "I look.",
        both},
       {"SeedOss",
        kSeedOss,
        ReasoningFormat::kSeed,
        "<seed:think>Hm, well.\n</seed:think>\nI look.\n<seed:tool_call>\n<function=get_weather>\n"
        "<parameter=city>Zürich</parameter>\n<parameter=days>3</parameter>\n</function>\n"
        "</seed:tool_call>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
        thought,
        "I look.",
        both,
        {"<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"}},
       {"Lfm2",
        kLfm2,
        kThink,
        thinking + "<|tool_call_start|>[get_weather(city='Zürich', days=3), now()]"
                   "<|tool_call_end|>",
        thought,
        "I look.",
        both,
        {"<|tool_call_start|>", "<|tool_call_end|>"}},
       {"Granite",
        kGranite,
        ReasoningFormat::kGranite,
        "<think>Hm, well.\n</think>\n<response>I look.</response>\n<|tool_call|>" + listed,
        thought,
        "I look.",
        both,
        {"<|tool_call|>"}},
       {"NemotronV2", kNemotronV2, kThink, thinking + "<TOOLCALL>" + listed + "</TOOLCALL>",
        thought, "I look.", both},
       {"Cohere",
        kCohere,
        ReasoningFormat::kCohere,
        "<|START_THINKING|>Hm, well.\n<|END_THINKING|><|START_TEXT|>I look.<|END_TEXT|>"
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
        "\"parameters\": " +
            arguments +
            "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]"
            "<|END_ACTION|>",
        thought,
        "I look.",
        both,
        {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_TEXT|>", "<|END_TEXT|>",
         "<|START_ACTION|>", "<|END_ACTION|>"}}});
  for (const auto& [name, format, open, close] :
       {std::tuple{"Think", kThink, "<think>\n", "</think>\n\n"},
        std::tuple{"ThinkFromStart", ReasoningFormat::kThinkFromStart, "", "</think>\n\n"},
        std::tuple{"ReasonsLikeKimi", ReasoningFormat::kKimi, "◁think▷", "◁/think▷"},
        std::tuple{"ReasonsLikeMistral", ReasoningFormat::kMistral, "[THINK]", "[/THINK]"},
        std::tuple{"ReasonsLikeGemma", ReasoningFormat::kGemma, "<|channel>thought\n",
                   "<channel|>"},
        std::tuple{"ReasonsLikeSeed", ReasoningFormat::kSeed, "<seed:think>", "</seed:think>\n"},
        std::tuple{"ReasonsLikeCohere", ReasoningFormat::kCohere, "<|START_THINKING|>",
                   "<|END_THINKING|><|START_RESPONSE|>"},
        std::tuple{"ReasonsLikeGranite", ReasoningFormat::kGranite, "<think>",
                   "</think>\n\n<response>"},
        std::tuple{"ReasonsLikeHarmony", kHarmonyReasoning, "<|channel|>analysis<|message|>",
                   "<|end|><|start|>assistant<|channel|>final<|message|>"}}) {
    rows.push_back({name, kNone, format, open + thought + close + "Zürich has 3 < 5 lakes.",
                    thought, "Zürich has 3 < 5 lakes."});
  }
  return rows;
}

class AnswerMatrix : public ScriptedFixture, public ::testing::WithParamInterface<MatrixRow> {
 protected:
  void start_row() {
    const MatrixRow& row = GetParam();
    model.scripts = {{"A", row.script}};
    model.special_tokens = row.special_tokens;
    options.tool_call_format = row.calls;
    options.reasoning_format = row.reasoning;
    start_scripted();
  }

  [[nodiscard]] ScriptedQuestion question(ScriptedApi api, bool stream) const {
    return {.api = api,
            .stream = stream,
            .tools = GetParam().calls == ToolCallFormat::kNone ? Json() : matrix_tools()};
  }
};

TEST_P(AnswerMatrix, AWholeAnswerIsTheSameInEveryApi) {
  start_row();
  const MatrixRow& row = GetParam();
  int64_t reasoning_tokens = -1;
  for (const ScriptedApi api : kScriptedApis) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(fmt::format("{} stream {}", path_of(api), stream));
      for (const int interval : {1, 5}) {
        if (interval > 1 && (!stream || api != ScriptedApi::kChatCompletions)) continue;
        ScriptedQuestion asked = question(api, stream);
        if (interval > 1) asked.extra = {{"stream_interval", interval}};
        const ScriptedAnswer answer = ask(asked);
        EXPECT_EQ(answer.text, row.text) << answer.body;
        EXPECT_EQ(answer.reasoning, row.thought) << answer.body;
        EXPECT_EQ(answer.calls, row.emitted) << answer.body;
        EXPECT_EQ(answer.finish, row.emitted.empty() ? "stop" : "tool_calls");
        if (answer.reasoning_tokens < 0) continue;
        if (reasoning_tokens < 0) reasoning_tokens = answer.reasoning_tokens;
        EXPECT_EQ(answer.reasoning_tokens, reasoning_tokens);
        EXPECT_EQ(answer.reasoning_tokens > 0, !row.thought.empty());
      }
    }
  }
}

// The stop text matches inside a value, which is therefore incomplete.
TEST_P(AnswerMatrix, AStopTextWithinACallCutsIt) {
  const ToolCallFormat format = GetParam().calls;
  if (format == ToolCallFormat::kNone) return;
  start_row();
  // Python's values are emitted whole.
  const bool is_python = format == ToolCallFormat::kPythonic || format == ToolCallFormat::kLfm2;
  for (const ScriptedApi api : kScriptedApis) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(fmt::format("{} stream {}", path_of(api), stream));
      ScriptedQuestion asked = question(api, stream);
      switch (api) {
        case ScriptedApi::kMessages:
          asked.extra = {{"stop_sequences", {"rich"}}};
          break;
        case ScriptedApi::kOllama:
          asked.extra = {{"options", {{"num_predict", 1000}, {"stop", {"rich"}}}}};
          break;
        case ScriptedApi::kChatCompletions:
        case ScriptedApi::kResponses:
          asked.extra = {{"stop", {"rich"}}};
      }
      ScriptedAnswer answer = ask(asked);
      const bool is_closed = api == ScriptedApi::kMessages && !stream;
      std::vector<ScriptedCall> cut = {
          {"get_weather", is_closed ? R"({"city":"Zü"})" : R"({"city":"Zü)"}};
      if (is_python) cut.front().arguments = is_closed ? "{}" : "";
      if (api == ScriptedApi::kOllama) cut.clear();
      ASSERT_EQ(answer.calls.size(), cut.size()) << answer.body;
      if (!cut.empty()) {
        std::erase(answer.calls.front().arguments, ' ');
        EXPECT_EQ(answer.calls, cut);
      }
      EXPECT_EQ(answer.text, GetParam().text);
      EXPECT_EQ(answer.body.find("\"finish_reason\":\"tool_calls\""), std::string::npos);
      EXPECT_EQ(answer.body.find("\"stop_reason\":\"tool_use\""), std::string::npos);
    }
  }
}

// Some clients stop at the mark that ends a call. The model has written the call to its end then.
TEST_P(AnswerMatrix, AStopTextThatEndsACallLeavesItWhole) {
  const MatrixRow& row = GetParam();
  for (const auto& [mark, num_calls] :
       {std::pair{"</tool_call>", 1}, std::pair{"</seed:tool_call>", 1},
        std::pair{"</minimax:tool_call>", 2}, std::pair{"</TOOLCALL>", 2},
        std::pair{"</function>", 1}, std::pair{"</invoke>", 1},
        std::pair{"</｜DSML｜invoke>", 1}}) {
    if (row.script.find(mark) == std::string::npos) continue;
    start_row();
    for (const bool stream : {false, true}) {
      ScriptedQuestion asked = question(ScriptedApi::kChatCompletions, stream);
      asked.extra = {{"stop", {mark}}};
      const ScriptedAnswer answer = ask(asked);
      EXPECT_EQ(answer.calls, std::vector(row.emitted.begin(), row.emitted.begin() + num_calls));
      EXPECT_NE(answer.body.find("\"finish_reason\":\"tool_calls\""), std::string::npos);
    }
  }
}

// A stop token that is text cuts a call as a stop text does.
TEST_P(AnswerMatrix, AStopTokenThatIsTextCutsACall) {
  const MatrixRow& row = GetParam();
  if (row.name != "Qwen" && row.name != "Glm" && row.name != "Gemma4" && row.name != "Cohere") {
    return;
  }
  start_row();
  ScriptedQuestion asked = question(ScriptedApi::kChatCompletions, false);
  asked.extra = {{"return_token_ids", true}};
  const Json ids = Json::parse(ask(asked).body)["choices"][0]["token_ids"];
  for (size_t i = 1; i < ids.size(); ++i) {
    asked.max_tokens = static_cast<int64_t>(i);
    const ScriptedAnswer limited = ask(asked);
    if (limited.calls.empty() || limited.calls.front().arguments.find("Z") == std::string::npos) {
      continue;
    }
    asked.max_tokens = 1000;
    asked.extra = {{"stop_token_ids", {ids[i]}}};
    const ScriptedAnswer stopped = ask(asked);
    EXPECT_EQ(stopped.calls, limited.calls);
    EXPECT_EQ(stopped.text, limited.text);
    EXPECT_NE(stopped.body.find("\"finish_reason\":\"stop\""), std::string::npos);
    return;
  }
  FAIL() << "no token ends within the text";
}

// The part of `part`, which stands in the script once, in an answer of `size` bytes: whole
// characters, without a bracket at the end, which may open a tag, and with the blank text behind
// the part if nothing but Granite's mark at the end of content stands between.
std::string part_of_cut(const std::string& script, const std::string& part, size_t size) {
  constexpr std::string_view kResponseEnd = "</response>";
  const size_t begin = script.find(part);
  if (part.empty() || size <= begin) return "";
  if (size < begin + part.size()) {
    while ((script[size] & 0xc0) == 0x80) --size;
    std::string shown = script.substr(begin, size - begin);
    if (shown.ends_with('<')) shown.pop_back();
    return shown;
  }
  std::string behind = script.substr(begin + part.size(), size - begin - part.size());
  if (behind.starts_with(kResponseEnd)) behind.erase(0, kResponseEnd.size());
  return behind.find_first_not_of('\n') == std::string::npos ? part + behind : part;
}

std::string without_blanks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

// After each token an answer has the text and the reasoning that the model has written, nothing of
// a mark, and the calls that have begun: the same in each API, streamed and whole.
TEST_P(AnswerMatrix, ACutAnswerIsTheSameStreamedAndWhole) {
  constexpr size_t kNumAnswers = 2 * kScriptedApis.size();  // of each API, whole and streamed
  engine_options.max_running_requests = kNumAnswers;
  engine_options.max_queued_requests = kNumAnswers;
  start_row();
  const MatrixRow& row = GetParam();
  const std::vector<std::string> pieces = model.pieces_of("A");
  size_t size = 0;
  for (size_t cut = 1; cut <= pieces.size(); ++cut) {
    size += pieces[cut - 1].size();
    if (HEDDLE_SANITIZED && cut % 13 != 0) continue;
    SCOPED_TRACE(fmt::format("after {} tokens: {}", cut, row.script.substr(0, size)));
    std::array<ScriptedAnswer, kNumAnswers> answers;
    std::vector<std::jthread> clients;
    for (size_t i = 0; i < kNumAnswers; ++i) {
      ScriptedQuestion asked = question(kScriptedApis[i / 2], i % 2 == 1);
      asked.max_tokens = static_cast<int64_t>(cut);
      clients.emplace_back([this, asked, &answer = answers[i]] { answer = ask(asked); });
    }
    clients.clear();
    const std::vector<ScriptedCall>& begun = answers[0].calls;
    ASSERT_LE(begun.size(), row.emitted.size());
    for (size_t i = 0; i < begun.size(); ++i) {
      EXPECT_EQ(begun[i].name, row.emitted[i].name);
      const std::string arguments = without_blanks(begun[i].arguments);
      const bool may_be_cut = i + 1 == begun.size() && cut < pieces.size();
      EXPECT_EQ(arguments, row.emitted[i].arguments.substr(
                               0, may_be_cut ? arguments.size() : std::string::npos));
    }
    const bool is_cut = !begun.empty() && begun.back() != row.emitted[begun.size() - 1];
    for (size_t i = 0; i < kNumAnswers; ++i) {
      const ScriptedApi api = kScriptedApis[i / 2];
      const bool stream = i % 2 == 1;
      SCOPED_TRACE(fmt::format("{} stream {}: {}", path_of(api), stream, answers[i].body));
      std::vector<ScriptedCall> calls = begun;
      if (is_cut && api == ScriptedApi::kOllama) calls.pop_back();
      if (is_cut && api == ScriptedApi::kMessages && !stream) {
        calls.back().arguments =
            Json::parse(parsers::completed_object(begun.back().arguments)).dump();
      }
      EXPECT_EQ(answers[i].text, part_of_cut(row.script, row.text, size));
      EXPECT_EQ(answers[i].reasoning, part_of_cut(row.script, row.thought, size));
      EXPECT_EQ(answers[i].calls, calls);
      EXPECT_EQ(answers[i].finish, "length");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AnswerMatrix, ::testing::ValuesIn(matrix_rows()),
                         [](const auto& one) { return one.param.name; });

// LooseAnswer: a spelling that models write in place of their format, or a text that quotes calls.
struct LooseAnswer {
  std::string name;
  ToolCallFormat calls = ToolCallFormat::kNone;
  std::string script;
  std::string thought = {};  // what clients get
  std::vector<ScriptedCall> emitted = {{"get_weather", R"({"city":"Rome","days":3})"}};
  std::string text = {};
  std::vector<std::string> special_tokens = {};

  friend void PrintTo(const LooseAnswer& row, std::ostream* out) { *out << row.name; }
};

class LooseAnswers : public ScriptedFixture, public ::testing::WithParamInterface<LooseAnswer> {};

TEST_P(LooseAnswers, AreReadInEveryApi) {
  const LooseAnswer& row = GetParam();
  model.scripts = {{"A", row.script}};
  model.special_tokens = row.special_tokens;
  options.tool_call_format = row.calls;
  options.reasoning_format =
      row.calls == ToolCallFormat::kHarmony ? ReasoningFormat::kHarmony : ReasoningFormat::kThink;
  start_scripted();
  for (const ScriptedApi api : kScriptedApis) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(fmt::format("{} stream {}", path_of(api), stream));
      const ScriptedAnswer answer = ask({.api = api, .stream = stream, .tools = matrix_tools()});
      EXPECT_EQ(answer.text, row.text) << answer.body;
      EXPECT_EQ(answer.reasoning, row.thought) << answer.body;
      EXPECT_EQ(answer.calls, row.emitted) << answer.body;
      EXPECT_EQ(answer.finish, row.emitted.empty() ? "stop" : "tool_calls");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Spellings, LooseAnswers,
    ::testing::ValuesIn(std::vector<LooseAnswer>{
        {"AParameterIsNotClosed", ToolCallFormat::kQwen3Coder,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n3\n"
         "</parameter>\n</function>\n</tool_call>"},
        {"TheLastParameterIsNotClosed", ToolCallFormat::kQwen3Coder,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter/>\n"
         "<parameter=days>\n3\n</function>\n</tool_call>"},
        {"AParameterIsClosedByItsName", ToolCallFormat::kQwen3Coder,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</city>\n<parameter=days>\n"
         "3\n</days>\n</function>\n</tool_call>"},
        {"TheFunctionIsQuoted", ToolCallFormat::kQwen3Coder,
         "<tool_call>\n<function=\"get_weather\">\n<parameter=city>\nRome\n</parameter1>\n"
         "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
        {"AValueIsNotOpened", ToolCallFormat::kGlm,
         "<tool_call>get_weather\n<arg_key>city</arg_key>Rome</arg_value>\n<arg_key>days</arg_key>"
         "\n<arg_value>3</arg_value>\n</tool_call>"},
        {"ABraceTooMany", ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
         "3}}}\n</tool_call>"},
        {"ACommaTooMany", ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
         "3,}},\n</tool_call>"},
        {"PythonBehindItsTag", ToolCallFormat::kLlama3,
         "<|python_tag|>get_weather.call(city=\"Rome\", days=3)"},
        {"ACallInsideReasoning", ToolCallFormat::kQwen,
         "<think>\nHm.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"Rome\", \"days\": 3}}\n</tool_call>\n</think>\n",
         "Hm.\n"},
        {"TheTagIsMissing", ToolCallFormat::kQwen,
         "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n"
         "</tool_call>"},
        {"QuotesInATextHaveNoBackslash",
         ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"the \"old\" one\", "
         "\"days\": 3}}\n</tool_call>",
         "",
         {{"get_weather", R"({"city":"the \"old\" one","days":3})"}}},
        {"DoubledBraces", ToolCallFormat::kQwen,
         "<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {{\"city\": \"Rome\", "
         "\"days\": 3}}}}\n</tool_call>"},
        {"ArgumentsBesideTheName", ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"city\": \"Rome\", \"days\": 3}\n</tool_call>"},
        {"AnArgumentInOtherCase", ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"City\": \"Rome\", \"days\": "
         "3}}\n</tool_call>"},
        {"ACodeFence", ToolCallFormat::kQwen,
         "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}"
         "\n```"},
        {"AnotherFormatsObject", ToolCallFormat::kQwen3Coder,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
         "3}}\n</tool_call>"},
        {"PythonBetweenTags", ToolCallFormat::kGlm,
         "<tool_call>get_weather(city=\"Rome\", days=3)</tool_call>"},
        {"ATagOfLlama", ToolCallFormat::kLlama3,
         "<function=get_weather>{\"city\": \"Rome\", \"days\": 3}</function>"},
        {"TheNameIsAnId", ToolCallFormat::kKimiK2,
         "<|tool_calls_section_begin|><|tool_call_begin|>call_get_weather_0"
         "<|tool_call_argument_begin|>{\"city\": \"Rome\", \"days\": 3}<|tool_call_end|>"
         "<|tool_calls_section_end|>"},
        {"AMessageWithoutItsMark",
         ToolCallFormat::kHarmony,
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.get_weather <|constrain|>json{\"city\": \"Rome\", \"days\": 3}<|call|>",
         "Hm.",
         {{"get_weather", R"({"city":"Rome","days":3})"}},
         "",
         {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>", "<|call|>"}},
        {"TwoMessages",
         ToolCallFormat::kHarmony,
         "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final"
         "<|message|>Yes.",
         "",
         {},
         "I look.\n\nYes.",
         {"<|channel|>", "<|message|>", "<|end|>", "<|start|>"}},
        {"AMessageWithoutABody",
         ToolCallFormat::kHarmony,
         "<|channel|>commentary to=functions.now<|call|>",
         "",
         {{"now", "{}"}},
         "",
         {"<|channel|>", "<|call|>"}},
        {"ARecipientWithoutTo",
         ToolCallFormat::kHarmony,
         "<|channel|>commentary functions.get_weather<|constrain|>json<|message|>{\"city\": "
         "\"Rome\", \"days\": 3}<|call|>",
         "",
         {{"get_weather", R"({"city":"Rome","days":3})"}},
         "",
         {"<|channel|>", "<|message|>", "<|constrain|>", "<|call|>"}},
        {"TagsAroundACall",
         ToolCallFormat::kQwen3Coder,
         "Sure.\n<function_calls>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n"
         "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n"
         "</function_calls>\nDone.",
         "",
         {{"get_weather", R"({"city":"Rome","days":3})"}},
         "Sure.\nDone."},
        {"TheOpeningTagIsMissing", ToolCallFormat::kQwen, "Hm. </think>Yes.", "", {}, "Hm. Yes."},
        {"AQuoteIsMissing", ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome, \"days\": "
         "3}}\n</tool_call>"},
        {"ALongInteger",
         ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
         "123456789012345678901234567890}}\n</tool_call>",
         "",
         {{"get_weather", R"({"city":"Rome","days":123456789012345678901234567890})"}}},
        {"ALongIntegerInATag",
         ToolCallFormat::kGlm,
         "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>-98765432109876543210"
         "</arg_value>\n</tool_call>",
         "",
         {{"get_weather", R"({"days":-98765432109876543210})"}}},
        {"NumbersAsTheyAreWritten",
         ToolCallFormat::kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"a\": 1e400, \"b\": "
         "18446744073709551616, \"c\": 1.0, \"d\": 1}}\n</tool_call>",
         "",
         {{"get_weather", R"({"a":1e400,"b":18446744073709551616,"c":1.0,"d":1})"}}},
        {"AMisspeltTagWithinALine",
         ToolCallFormat::kQwen,
         "<thinking>Hm.</thinking>Yes.",
         "Hm.",
         {},
         "Yes."},
        {"ATagWithBlanks", ToolCallFormat::kQwen, "<think>Hm.</ think >Yes.", "Hm.", {}, "Yes."},
        {"ACoderTextQuotesACall",
         ToolCallFormat::kQwen3Coder,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\n<tool_call>\n<function=now>\n"
         "</function>\n</tool_call>\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
         "</tool_call>",
         "",
         {{"get_weather",
           R"({"city":"<tool_call>\n<function=now>\n</function>\n</tool_call>","days":3})"}}},
        {"AGlmTextQuotesACall",
         ToolCallFormat::kGlm,
         "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value><tool_call>get_weather\n"
         "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call></arg_value>\n"
         "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
         "",
         {{"get_weather",
           R"({"city":"<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome)"
           R"(</arg_value>\n</tool_call>","days":3})"}}},
        {"ADeepseekTextQuotesACall",
         ToolCallFormat::kDeepseekV32,
         "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
         "name=\"city\" string=\"true\"><｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>"
         "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3"
         "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         "",
         {{"get_weather",
           R"({"city":"<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>","days":3})"}}},
    }),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace heddle::server
