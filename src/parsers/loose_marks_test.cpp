// SPDX-License-Identifier: Apache-2.0
// Marks of calls that lack a sign or have one twice, values that lack their marks, and texts that
// only look so.
#include <cstddef>

#include "parsers/loose_calls_fixture.h"

namespace heddle::parsers {
namespace {

using enum ToolCallFormat;

const std::string kParis = R"({"city": "Paris", "days": 3})";

// A call of get_weather; '~' stands on both sides of the signs that may be wrong.
struct MarkedCall {
  ToolCallFormat format;
  std::string call;
};

std::vector<MarkedCall> marked_calls() {
  const std::string object = R"({"name": "get_weather", "arguments": )" + kParis + "}";
  const std::string tool = R"("get_weather")";
  return {
      {kQwen, "~<tool_call>~\n" + object + "\n~</tool_call>~"},
      {kQwen3Coder,
       "~<tool_call>~\n~<function=~get_weather~>~\n~<parameter=~city~>~\nParis\n~</parameter~>\n"
       "~<parameter=~days~>~\n3\n~</parameter>~\n~</function>~\n~</tool_call>~"},
      {kSeedOss,
       "~<seed:tool_call>~\n~<function=~get_weather~>~\n~<parameter=~city~>~Paris~</parameter>~\n"
       "~<parameter=~days~>~3~</parameter>~\n~</function>~\n~</seed:tool_call>~"},
      {kMinimaxM2, "~<minimax:tool_call>~\n~<invoke name=~" + tool +
                       "~>~\n~<parameter name=~\"city\"~>~Paris"
                       "~</parameter>~\n~<parameter name=~\"days\"~>~3~</parameter>~\n~</invoke>~\n"
                       "~</minimax:tool_call>~"},
      {kDeepseekV32,
       "~<｜DSML｜function_calls>~\n~<｜DSML｜invoke name=~" + tool +
           "~>~\n~<｜DSML｜parameter name=~\"city\" string=\"true\"~>~Paris~</｜DSML｜parameter>~\n"
           "~<｜DSML｜parameter name=~\"days\" string=\"false\"~>~3~</｜DSML｜parameter>~\n"
           "~</｜DSML｜invoke>~\n~</｜DSML｜function_calls>~"},
      {kGlm,
       "~<tool_call>~get_weather\n~<arg_key>~city~</arg_key>~\n~<arg_value>~Paris~</arg_value>~\n"
       "~<arg_key>~days~</arg_key>~\n~<arg_value>~3~</arg_value>~\n~</tool_call>~"},
      {kLlama3, "~<|python_tag|>~{\"name\": \"get_weather\", \"parameters\": " + kParis + "}"},
      {kMistral, "~[TOOL_CALLS]~get_weather~[ARGS]~" + kParis},
      {kDeepseekV3, "~<｜tool▁calls▁begin｜>~~<｜tool▁call▁begin｜>~get_weather~<｜tool▁sep｜>~" +
                        kParis + "~<｜tool▁call▁end｜>~~<｜tool▁calls▁end｜>~"},
      {kKimiK2,
       "~<|tool_calls_section_begin|>~~<|tool_call_begin|>~functions.get_weather:0"
       "~<|tool_call_argument_begin|>~" +
           kParis + "~<|tool_call_end|>~~<|tool_calls_section_end|>~"},
      {kPythonic, "~<|python_start|>~[get_weather(city=\"Paris\", days=3)]~<|python_end|>~"},
      {kLfm2, "~<|tool_call_start|>~[get_weather(city=\"Paris\", days=3)]~<|tool_call_end|>~"},
      {kGranite, "~<|tool_call|>~[" + object + "]"},
      {kNemotronV2, "~<TOOLCALL>~[" + object + "]~</TOOLCALL>~"},
      {kCohere, "~<|START_ACTION|>~[{\"tool_name\": \"get_weather\", \"parameters\": " + kParis +
                    "}]~<|END_ACTION|>~"},
      {kGemma4, "~<|tool_call>~call:get_weather{city:~<|\"|~>Paris<~|\"|>~,days:3}~<tool_call|>~"},
      {kHarmony,
       "~<|channel|>~commentary to=functions.get_weather ~<|constrain|>~json~<|message|>~" +
           kParis + "~<|call|>~"},
  };
}

size_t character_size(std::string_view text) {
  size_t size = 1;
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) ++size;
  return size;
}

TEST(LooseMarksTest, AMarkLacksASignOrHasOneTwice) {
  const std::vector<MarkedCall> calls = marked_calls();
  for (const auto& [format, marked] : calls) {
    std::string call;
    std::vector<std::pair<size_t, size_t>> spans;
    for (size_t at = 0, begin = std::string::npos; at < marked.size(); ++at) {
      if (marked[at] != '~') {
        call += marked[at];
      } else if (begin == std::string::npos) {
        begin = call.size();
      } else {
        spans.emplace_back(begin, call.size());
        begin = std::string::npos;
      }
    }
    ASSERT_FALSE(spans.empty());
    std::vector<std::string> texts = {call};
    for (const auto& [begin, end] : spans) {
      const std::string mark = call.substr(begin, end - begin);
      const bool is_whole =
          mark.front() != '|' && mark.size() > 2 && (mark.back() == '>' || mark.back() == ']');
      if (is_whole) texts.push_back(call.substr(0, begin) + call.substr(end));
      for (size_t at = begin; at < end;) {
        const size_t size = character_size(std::string_view(call).substr(at));
        const std::string sign = call.substr(at, size);
        texts.push_back(call.substr(0, at) + call.substr(at + size));
        if (std::string_view("<>[]|/｜").find(sign) != std::string_view::npos) {
          texts.push_back(call.substr(0, at) + sign + call.substr(at));
        }
        at += size;
      }
    }
    expect_weather(format, texts);
  }
}

TEST(LooseMarksTest, AValueLacksItsOpeningTag) {
  expect_weather(kQwen3Coder,
                 {"<tool_call>\n<function=get_weather>\nParis\n</parameter>\n<parameter=days>\n3\n"
                  "</parameter>\n</function>\n</tool_call>"});
  expect_weather(kGlm,
                 {"<tool_call>get_weather\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
                  "<arg_value>3</arg_value>\n</tool_call>",
                  "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
                  "<arg_value>3</arg_value>\n</tool_call>",
                  "<tool_call>get_weather\n<arg_keycity</arg_key>\n<arg_valueParis</arg_value>\n"
                  "<arg_keydays</arg_key>\n<arg_value3</arg_value>\n</tool_call>"});
  expect_weather(kMinimaxM2,
                 {"<minimax:tool_call>\n<invoke name=\"get_weather\">\nParis</parameter>\n"
                  "<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>"});
  // Two parameters might be meant.
  const std::string text =
      "<tool_call>\n<function=get_weather>\nParis\n</parameter>\n</function>\n</tool_call>";
  const AssembledAnswer answer =
      read_loosely({.calls = kQwen3Coder}, text, text.size(), /*keeps_call_text=*/true);
  EXPECT_TRUE(answer.calls.empty());
  EXPECT_NE(answer.content.find("Paris"), std::string::npos);
}

TEST(LooseMarksTest, GemmasTexts) {
  for (const std::string city :
       {R"(<|"|Paris<|"|>)", R"(<|">Paris<|"|>)", R"(<|"|>Paris|"|>)", R"(<|'|>Paris<|'|>)",
        R"(<|\"|>Paris<|\"|>)", R"(<|"|><|"|>Paris<|"|>)", R"(<|"|>Paris<|"|><|"|>)",
        R"("Paris<|"|>)", R"(<<|"|>Paris<|"|>>)"}) {
    expect_weather(kGemma4, {"<|tool_call>call:get_weather{city:" + std::string(city) +
                             ",days:3}<tool_call|>"});
  }
  for (const std::string_view city : {R"(a |"b"| c)", "x <| y |> z", "|", R"(say "hi")", R"(<|"x)",
                                      "", R"(a|"|b)", "1 < 2 || 3 > 2"}) {
    expect_read({.calls = kGemma4},
                "<|tool_call>call:get_weather{city:<|\"|>" + std::string(city) +
                    "<|\"|>,days:3}<tool_call|>",
                {"", "", {{"get_weather", {{"city", city}, {"days", 3}}}}});
  }
}

TEST(LooseMarksTest, ABracketBeforeAValueIsTheTagsOrTheTexts) {
  const auto call_of = [](const std::string& value) {
    return "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>" + value +
           "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
  };
  expect_weather(kGlm, {call_of(">Paris")});
  for (const std::string value :
       {"> quoted", ">5", ">= 3", ">>log", ">seq1\nACGT", ">li>a", "a>b", ">",
        "see /arg_value> there", "a/arg_value>b", "/", "<a/>", "</p>"}) {
    expect_read({.calls = kGlm}, call_of(value),
                {"", "", {{"get_weather", {{"city", value}, {"days", 3}}}}});
  }
}

TEST(LooseMarksTest, NumbersOfOtherNotations) {
  const std::pair<const char*, LooseJson> kNumbers[] = {
      {"03", 3},    {"-03", -3},  {"+3", 3},       {"0x1F", 31}, {"0b11", 3},
      {"0o17", 15}, {"00", 0},    {"1_000", 1000}, {"0", 0},     {"-0", 0},
      {"12", 12},   {"3.0", 3.0}, {"1e3", 1e3},    {"0e1", 0.0}};
  for (const auto& [written, number] : kNumbers) {
    const std::string value = written;
    const std::string object = R"({"city": "Paris", "days": )" + value + "}";
    const Expected expected = {"", "", {{"get_weather", {{"city", "Paris"}, {"days", number}}}}};
    const std::pair<ToolCallFormat, std::string> kCalls[] = {
        {kQwen,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + object + "}\n</tool_call>"},
        {kQwen, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"days\": " + value +
                    ", \"city\": \"Paris\"}}\n</tool_call>"},
        {kGlm,
         "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
         "<arg_key>days</arg_key>\n<arg_value>" +
             value + "</arg_value>\n</tool_call>"},
        {kDeepseekV32,
         "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
         "name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n<｜DSML｜parameter "
         "name=\"days\" string=\"false\">" +
             value + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
        {kPythonic, "[get_weather(city=\"Paris\", days=" + value + ")]"},
        {kGemma4,
         "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:" + value + "}<tool_call|>"},
    };
    for (const auto& [format, call] : kCalls) {
      const AssembledAnswer answer = read_loosely({.calls = format}, call, 1, false);
      ASSERT_EQ(answer.calls.size(), 1U) << call;
      EXPECT_EQ(LooseJson::parse(answer.calls[0].arguments, nullptr, false)["days"], number)
          << call;
      EXPECT_EQ(answer.content, "");
    }
  }
  // A text keeps its signs.
  for (const std::string zip : {"01234", "+4930", "0x3"}) {
    for (const auto& [format, call] :
         {std::pair{kQwen, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": " +
                               zip + ", \"days\": 3}}\n</tool_call>"},
          std::pair{kPythonic, "[get_weather(city=" + zip + ", days=3)]"},
          std::pair{kGemma4,
                    "<|tool_call>call:get_weather{city:" + zip + ",days:3}<tool_call|>"}}) {
      expect_read({.calls = format}, call,
                  {"", "", {{"get_weather", {{"city", zip}, {"days", 3}}}}});
    }
  }
}

TEST(LooseMarksTest, SeveralObjectsInAListOfArguments) {
  const std::string begin = "<|channel|>commentary to=functions.get_weather<|message|>";
  for (const std::string list :
       {R"([{"city": "Paris"}, {"days": 3}])", R"([{"city": "Paris"},{},{"days": 3},])"}) {
    expect_weather(kQwen, {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " +
                           std::string(list) + "}\n</tool_call>"});
    expect_weather(kMistral, {"[TOOL_CALLS]get_weather[ARGS]" + std::string(list)});
    expect_weather(kHarmony, {begin + list + "<|call|>"});
  }
  const std::string rivals = R"([{"city": "Paris", "days": 3}, {"city": "Rome", "days": 4}])";
  const Expected both = {"",
                         "",
                         {{"get_weather", {{"city", "Paris"}, {"days", 3}}},
                          {"get_weather", {{"city", "Rome"}, {"days", 4}}}}};
  expect_read(
      {.calls = kQwen},
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + rivals + "}\n</tool_call>",
      both);
  expect_read({.calls = kMistral}, "[TOOL_CALLS]get_weather[ARGS]" + rivals, both);
  expect_read({.calls = kHarmony}, begin + rivals + "<|call|>", both);
}

TEST(LooseMarksTest, HarmonysMarks) {
  const LooseOptions options = {.calls = kHarmony, .reasoning = ReasoningFormat::kHarmony};
  const std::string final = "<|start|>assistant<|channel|>final<|message|>Yes.";
  for (const std::string begin :
       {"<channel>analysis<|message|>", "<|channel>analysis<|message|>",
        "|channel|>analysis<|message|>", "channel|>analysis<|message|>",
        "<|channel|analysis<|message|>", "<|channelanalysis<|message|>"}) {
    expect_read(options, std::string(begin) + "Hm.<|end|>" + final, {"Yes.", "Hm.", {}});
  }
  for (const std::string end : {"<|end|>>", "<end>", "<|end|", "<|end>"}) {
    expect_read(options, "<|channel|>analysis<|message|>Hm." + std::string(end) + final,
                {"Yes.", "Hm.", {}});
  }
  for (const std::string& call :
       {"<|constrain|json<|message|>" + kParis + "<|call|>",
        "<|constrainjson<|message|>" + kParis + "<|call|>>",
        "|constrain|>json|message|>" + kParis + "call|>", "<|message|>" + kParis + "<call>",
        "<|message|" + kParis + "|call|>"}) {
    expect_read(options, "<channel>commentary to=functions.get_weather " + call,
                {"", "", {{"get_weather", LooseJson::parse(kParis)}}});
  }
  for (const std::string text :
       {"<channel>\n<title>News</title>", "<channel>analysis</channel>", "channel> analysis of it",
        "start", "channel", "The channel is final.", "|call|", "<call>me", "<end> of it",
        "start assistant"}) {
    expect_read(options, text, {std::string(text), "", {}});
    const std::string message = "<|channel|>final<|message|>" + std::string(text);
    expect_read(options, message, {std::string(text), "", {}});
  }
}

TEST(LooseMarksTest, AClosingTagInAHeaderCostsItselfOnly) {
  const LooseOptions options = {.calls = kHarmony, .reasoning = ReasoningFormat::kHarmony};
  for (const char* tag : {"</b>", "</think>", "<|/channel|>", "</channel>", "</|message|>"}) {
    SCOPED_TRACE(tag);
    const std::string header = std::string("<|channel|>final") + tag;
    expect_read(options, header, {"", "", {}});
    expect_read(options, header + "<|message|>Yes", {"Yes", "", {}});
    expect_read(options, std::string("<|channel|>analysis") + tag + "<|message|>Hm.",
                {"", "Hm.", {}});
  }
}

TEST(LooseMarksTest, TextsThatLookLikeMarks) {
  for (const MarkedCall& call : marked_calls()) {
    if (call.format == kHarmony) continue;
    for (const std::string text :
         {"tool_call> is the tag.", "tools> ls", "function=get_weather> is how it begins.",
          "invoke name", "TOOL_CALLS] it says", "|tool_call|>", "Tools\nare listed.", "<toolsmith",
          "a/tool_call>b", "in\ntool_call>\nno call", "<ools>", "tool_call>\n{\"a\": 1}"}) {
      expect_read({.calls = call.format}, text, {std::string(text), "", {}});
    }
  }
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  for (const std::string behind :
       {"Tools are ready.", "t", "tool_call is done.", "|x|", "call it"}) {
    expect_read({.calls = kQwen}, call + "\n" + std::string(behind),
                {"\n" + std::string(behind), "", {{"now", LooseJson::object()}}});
  }
}

}  // namespace
}  // namespace heddle::parsers
