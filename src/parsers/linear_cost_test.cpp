// SPDX-License-Identifier: Apache-2.0
// No text makes a parser look at its bytes again and again, at once or in small pieces. Counted are
// the bytes looked at, not the time.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"
#include "parsers/marker_search.h"

namespace heddle::parsers {
namespace {

// Looks at a byte: of a mark that may be one of several, or of a name that may be misspelt.
constexpr uint64_t kMostLooks = 500;
// The limit for runs of marks: a call may begin at each of them.
constexpr uint64_t kMostLooksAtMarks = 80;

std::shared_ptr<const nlohmann::ordered_json> costly_tools() {
  static const auto kTools =
      std::make_shared<const nlohmann::ordered_json>(nlohmann::ordered_json::parse(R"([
        {"type": "function", "function": {"name": "w", "parameters": {"properties": {
          "c": {"type": "string"}, "l": {"type": "array"}}}}},
        {"type": "function", "function": {"name": "get_weather"}}])"));
  return kTools;
}

void expect_linear(ToolCallFormat calls, ReasoningFormat reasoning, std::string_view text,
                   size_t piece, uint64_t most_looks = kMostLooks) {
  const auto parser = make_answer_parser({.reasoning = reasoning,
                                          .starts_in_reasoning = text.starts_with("Hm"),
                                          .tool_calls = calls,
                                          .tools = costly_tools()});
  AnswerDeltas deltas;
  const uint64_t before = searched_bytes();
  for (size_t at = 0; at < text.size(); at += piece) {
    parser->push(text.substr(at, piece), deltas);
    deltas.clear();
  }
  parser->finish(TextEnd::kStopped, deltas);
  const uint64_t looks = searched_bytes() - before;
  EXPECT_GT(looks, 0U);
  EXPECT_LE(looks, most_looks * text.size())
      << to_string(calls) << ' ' << to_string(reasoning) << ' ' << text.substr(0, 120);
}

std::string repeated(std::string_view unit, size_t size) {
  std::string text;
  while (text.size() < size) text += unit;
  return text;
}

// Beginnings and units of texts that hold a parser of this format as long as they can.
std::vector<std::pair<std::string, std::string>> hostile_texts(ToolCallFormat format) {
  std::vector<std::pair<std::string, std::string>> texts = {{"", "<"},
                                                            {"", "a <b> "},
                                                            {"", " "},
                                                            {"", "\n"},
                                                            {"", "{\"name\": \""},
                                                            {"", "[[[[{"},
                                                            {"", "w\n"},
                                                            {"", "get_"},
                                                            {"", "x"},
                                                            {"", "<tool_cal"},
                                                            {"Hm", "<"},
                                                            {"Hm", "</think"},
                                                            {"Hm", "</think "},
                                                            {"<think>", "<think>\n"},
                                                            {"", "</think>"},
                                                            {"", "</think>\n"},
                                                            {"", "```\n"},
                                                            {"", "```json\n"},
                                                            {"", "```tool_call\nw("},
                                                            {"", "x\n<think>\n</think>\n"},
                                                            {"", "<|end|>"},
                                                            {"", "<|channel|>"}};
  const auto add = [&texts](std::initializer_list<std::string_view> units) {
    for (const std::string_view unit : units) texts.emplace_back("", unit);
    for (const std::string_view unit : units) texts.emplace_back("Hm ", unit);
  };
  switch (format) {
    case ToolCallFormat::kQwen:
      texts.emplace_back("<tool_call>{\"name\": \"w\", \"arguments\": {\"c\": \"", "</tool_call>");
      texts.emplace_back("<tool_call>{\"name\": \"w\", \"arguments\": {\"l\": [", "1, ");
      texts.emplace_back("<tool_call>{\"name\": \"w\", \"arguments\": \"", "{\\\"");
      for (const std::string_view quotes :
           {"\"", "\", \"", "\"}", "\"  \n ", "\", \"a long key that is none ", "\"}]}]}]}]}]}",
            "}", "}</tool_call>", "\n}", "}}\n</tool_call>\\\""}) {
        texts.emplace_back("<tool_call>{\"name\": \"w\", \"arguments\": {\"c\": \"", quotes);
      }
      texts.emplace_back("<tool_call>{\"name\": \"w\", \"arguments\": {", "\"C\": 1, ");
      add({"<tool_call>", "<tool_call>\n", "<tool_call>w(", "<tool_call>{{",
           "<tool_call>{\"arguments\": {\"a\": \"", "</tool_call>",
           "<tool_call>{\"name\": \"now\"}</tool_call>    \n",
           "<tool_call>{\"name\": \"now\"}},,"});
      break;
    case ToolCallFormat::kQwen3Coder:
      texts.emplace_back("<function=w><parameter=c>", "</parameter>");
      texts.emplace_back("<function=w><parameter=c>", "</parameter>\n  \n");
      texts.emplace_back("<function=w><parameter=c>\n", "<parameter=c>\n");
      texts.emplace_back("<function=w><parameter=c>", "</function>\n");
      texts.emplace_back("<function=w><parameter=l>", "<tool_call>");
      texts.emplace_back("<function=w><parameter=c>\n", "<function=w>\n<parameter=c>\n");
      texts.emplace_back("<function=w><parameter=c>\n", "<function=w>\n</function>\n");
      texts.emplace_back("<function=w><parameter=c>\n</function>\n", "x\n</tool_call>\n");
      add({"<tool_call>", "<function=", "<tool_call><function=w>", "<function=w></function> ",
           "<function=w><parameter=c></parameter></function>"});
      break;
    case ToolCallFormat::kGlm:
      texts.emplace_back("<tool_call>w<arg_key>c</arg_key><arg_value>", "</arg_value>");
      texts.emplace_back("<tool_call>w<arg_key>c</arg_key><arg_value>", "<arg_key>c");
      texts.emplace_back("<tool_call>w", "<arg_key>z</arg_key><arg_value>1</arg_value>");
      add({"<tool_call>", "<tool_call>w\n", "<tool_call>w\n<arg_key>"});
      break;
    case ToolCallFormat::kDeepseekV32:
      texts.emplace_back("<invoke name=\"w\"><parameter name=\"c\">", "</parameter>");
      add({"<invoke ", "<invoke name=\"", "<｜DSML｜function_calls>",
           "<｜DSML｜invoke name=\"w\">"});
      break;
    case ToolCallFormat::kDeepseekV3:
      add({"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>",
           "<｜tool▁call▁begin｜>w<｜tool▁sep｜>", "<｜tool▁sep｜>", "<｜"});
      break;
    case ToolCallFormat::kKimiK2:
      add({"<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.w:0", "<|tool_call_end|>",
           "functions.w\n"});
      break;
    case ToolCallFormat::kLlama3:
      add({"<|python_tag|>", "<|python_tag|>w(", "<|python_tag|>w(c=\"", "{\"name\": \"w\", \n"});
      break;
    case ToolCallFormat::kMistral:
      add({"[TOOL_CALLS]", "[TOOL_CALLS]w", "[TOOL_CALLS][", "[TOOL_CALLS]w[ARGS]", "[ARGS]"});
      break;
    case ToolCallFormat::kPythonic:
      texts.emplace_back("[w(", "c='x', ");
      texts.emplace_back("[w(l=[", "1, ");
      add({"<|python_start|>", "<|python_start|>[w(", "<|python_start|>{'a': ", "[w(\n", "w(\n"});
      break;
    case ToolCallFormat::kGemma4:
      for (const std::string_view unit :
           {"<|\"|", "<|\"|>", "<tool_call|>", "}<tool_call|>", "}}}}", "] ", ",l:", ",c:1", ",",
            "<|\"|>,", "<|\"|> ", "<|\"|>x,l:"}) {
        texts.emplace_back("<|tool_call>call:w{c:<|\"|>", unit);
      }
      for (const std::string_view unit : {"x:1,", "l:[1,[", "c", "{", "<|\"|>a<|\"|>,", "\"a\" "}) {
        texts.emplace_back("<|tool_call>call:w{", unit);
      }
      add({"<|tool_call>", "<|tool_call>call:", "<|tool_call>call:w{", "call:w{", "call:w\n",
           "<tool_call|>", "<|tool_call>call:w{}<tool_call|>"});
      break;
    case ToolCallFormat::kMinimaxM2:
      texts.emplace_back("<invoke name=\"w\"><parameter name=\"c\">", "</parameter>");
      texts.emplace_back("<minimax:tool_call><invoke name=\"w\"><parameter name=\"c\">",
                         "</invoke>\n");
      add({"<invoke ", "<invoke name=\"", "<minimax:tool_call>",
           "<minimax:", "<minimax:tool_call><invoke name=\"w\">"});
      break;
    case ToolCallFormat::kSeedOss:
      texts.emplace_back("<function=w><parameter=c>", "</parameter>");
      texts.emplace_back("<function=w><parameter=c>", "</function></seed:tool_call>\n");
      add({"<seed:tool_call>", "<seed:", "<function=", "<seed:tool_call><function=w>",
           "<function=w></function> "});
      break;
    case ToolCallFormat::kLfm2:
      texts.emplace_back("<|tool_call_start|>[w(", "c='x', ");
      add({"<|tool_call_start|>", "<|tool_call_start|>[w(", "[w(\n", "<|tool_call_end|>"});
      break;
    case ToolCallFormat::kGranite:
      texts.emplace_back("<|tool_call|>[", "{\"name\": \"w\"}, ");
      add({"<|tool_call|>", "<|tool_call|>[{", "<|tool_call|>[{\"name\": \"w\", \"arguments\": {"});
      break;
    case ToolCallFormat::kNemotronV2:
      texts.emplace_back("<TOOLCALL>[", "{\"name\": \"w\"}, ");
      add({"<TOOLCALL>", "</TOOLCALL>", "<TOOLCALL>[{\"arguments\": {\"a\": \""});
      break;
    case ToolCallFormat::kCohere:
      texts.emplace_back("<|START_ACTION|>[", "{\"tool_name\": \"w\"}, ");
      add({"<|START_ACTION|>", "<|END_ACTION|>", "[\n{\"tool_", "<|START_RESPONSE|>",
           "<|START_ACTION|>[{\"tool_call_id\": \"0\", "});
      break;
    case ToolCallFormat::kHarmony:
      texts.emplace_back("<|channel|>analysis<|message|>", "<|mess");
      texts.emplace_back("<|channel|>commentary to=w<|message|>{\"c\": \"", "<|call|>");
      add({"<|channel|>analysis", "<|start|>assistant", "<|message|>",
           "<|start|> to=", "<|channel|>analysis<|message|>", "analysis ", "<|end|>assistant ",
           "<|channel|>final</think>", "<|channel|>commentary to=w</b>",
           "<|channel|>commentary to=w<|message|></b>"});
      break;
    case ToolCallFormat::kJson:
      texts.emplace_back("{\"name\": \"w\", \"arguments\": {\"l\": [", "1, ");
      add({"{\"name\": \"w\", \n", "{", "{\"arguments\": {\"a\": \""});
      break;
    case ToolCallFormat::kNone:
      break;
  }
  return texts;
}

class LinearCostTest : public ::testing::TestWithParam<ToolCallFormat> {};

TEST_P(LinearCostTest, EveryByteIsLookedAtABoundedNumberOfTimes) {
  const bool harmony = GetParam() == ToolCallFormat::kHarmony;
  const auto reasoning = harmony ? ReasoningFormat::kHarmony : ReasoningFormat::kThink;
  const auto texts = hostile_texts(GetParam());
  const size_t num_common = hostile_texts(ToolCallFormat::kNone).size();
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& [begin, unit] = texts[i];
    // Texts that are no format's own are tried whole with one of them.
    const bool is_own = GetParam() == ToolCallFormat::kQwen || i >= num_common;
    const std::string text = begin + repeated(unit, is_own ? 1 << 20 : 1 << 16);
    expect_linear(GetParam(), reasoning, text, text.size());
    expect_linear(GetParam(), reasoning, std::string_view(text).substr(0, 20000), 1);
  }
}

TEST_P(LinearCostTest, MarksInARowAreNotTriedOneByOne) {
  const bool harmony = GetParam() == ToolCallFormat::kHarmony;
  const auto reasoning = harmony ? ReasoningFormat::kHarmony : ReasoningFormat::kThink;
  for (const std::string_view begin : {"", "Hm "}) {
    for (const std::string_view unit :
         {"<tool_call>", "<tool_call>\n", "<toolcall>", "<tool_call> <tools>", "<function_calls>",
          "<tool_call><tool_call><tool_call><tool_call>x"}) {
      const bool is_first = begin.empty() && unit == "<tool_call>";
      const std::string text = std::string(begin) + repeated(unit, is_first ? 1 << 20 : 1 << 15);
      expect_linear(GetParam(), reasoning, text, text.size(), kMostLooksAtMarks);
      expect_linear(GetParam(), reasoning, std::string_view(text).substr(0, 1 << 15), 16,
                    kMostLooksAtMarks);
    }
  }
}

// Parameters of many names, which are looked up among those that were there.
TEST_P(LinearCostTest, ManyParametersAndCalls) {
  std::string parameters;
  for (int i = 0; i < 20000; ++i) {
    if (GetParam() == ToolCallFormat::kGemma4) {
      parameters += fmt::format("p{}:<|\"|>x<|\"|>,", i);
    } else if (GetParam() == ToolCallFormat::kQwen3Coder) {
      parameters += fmt::format("<parameter=p{}>\nx\n</parameter>\n", i);
    } else if (GetParam() == ToolCallFormat::kGlm) {
      parameters += fmt::format("<arg_key>p{}</arg_key><arg_value>x</arg_value>", i);
    } else if (GetParam() == ToolCallFormat::kPythonic) {
      parameters += fmt::format("p{}='x', ", i);
    }
  }
  if (parameters.empty()) return;
  const std::string begin = GetParam() == ToolCallFormat::kQwen3Coder ? "<function=w>\n"
                            : GetParam() == ToolCallFormat::kGlm      ? "<tool_call>w\n"
                            : GetParam() == ToolCallFormat::kGemma4   ? "<|tool_call>call:w{"
                                                                      : "[w(";
  expect_linear(GetParam(), ReasoningFormat::kNone, begin + parameters, parameters.size());
}

INSTANTIATE_TEST_SUITE_P(
    Formats, LinearCostTest,
    ::testing::Values(ToolCallFormat::kNone, ToolCallFormat::kQwen, ToolCallFormat::kQwen3Coder,
                      ToolCallFormat::kDeepseekV3, ToolCallFormat::kDeepseekV32,
                      ToolCallFormat::kGlm, ToolCallFormat::kLlama3, ToolCallFormat::kMistral,
                      ToolCallFormat::kPythonic, ToolCallFormat::kKimiK2, ToolCallFormat::kGemma4,
                      ToolCallFormat::kMinimaxM2, ToolCallFormat::kSeedOss, ToolCallFormat::kLfm2,
                      ToolCallFormat::kGranite, ToolCallFormat::kNemotronV2,
                      ToolCallFormat::kCohere, ToolCallFormat::kHarmony, ToolCallFormat::kJson),
    [](const auto& one) { return fmt::format("{:02}", static_cast<int>(one.param)); });

TEST(LinearReasoningCostTest, EveryFormat) {
  for (const auto format :
       {ReasoningFormat::kThink, ReasoningFormat::kThinkFromStart, ReasoningFormat::kKimi,
        ReasoningFormat::kMistral, ReasoningFormat::kGemma, ReasoningFormat::kSeed,
        ReasoningFormat::kCohere, ReasoningFormat::kGranite}) {
    const ReasoningTags tags = tags_of(format);
    for (const std::string& unit :
         {std::string(tags.open), std::string(tags.close), std::string(tags.close).substr(0, 5),
          std::string(tags.open) + "\n", std::string("</think "), std::string("["),
          std::string("<|channel|>"), std::string("<response>"), std::string("<|END_TEXT|>")}) {
      expect_linear(ToolCallFormat::kNone, format, "Hm" + repeated(unit, 1 << 20), 1 << 20);
      expect_linear(ToolCallFormat::kNone, format, "Hm" + repeated(unit, 30000), 1);
    }
  }
}

}  // namespace
}  // namespace heddle::parsers
