// SPDX-License-Identifier: Apache-2.0
// Calls that are written as in Python, and those of Gemma 4, whose keys have no quotes, as models
// write them when they do not keep to their format: see loose_json_calls_test.cpp.
#include "parsers/loose_calls_fixture.h"

namespace heddle::parsers {
namespace {

TEST(LoosePythonCallsTest, PythonicLists) {
  const std::string call = "get_weather(city='Paris', days=3)";
  expect_weather(ToolCallFormat::kPythonic, {
                                                "[" + call + "]",
                                                call,
                                                "[" + call,
                                                "[[" + call + "]]",
                                                call + "]",
                                                "<|python_start|>[" + call + "]<|python_end|>",
                                                "[" + call + "]<|python_end|>",
                                                "<|python_start|><|python_start|>[" + call + "]",
                                                "<|python_start>[" + call + "]",
                                                "<|python_start|>" + call,
                                                "[get_weather('Paris', 3)]",
                                                "[get_weather(city='Paris', days=3]",
                                                "[getWeather(city='Paris', days=3,)]",
                                                "[get_weather(city='Paris', days=3",
                                            });
}

TEST(LoosePythonCallsTest, Lfm2Lists) {
  const std::string call = "get_weather(city='Paris', days=3)";
  const std::string begin = "<|tool_call_start|>";
  const std::string end = "<|tool_call_end|>";
  expect_weather(
      ToolCallFormat::kLfm2,
      {
          begin + "[" + call + "]" + end,
          begin + call + end,
          begin + "[" + call,
          begin + "[[" + call + "]]" + end + end,
          begin + begin + "[" + call + "]" + end,
          "[" + call + "]" + end,
          call,
          "<|tool_call_start>[" + call + "]<tool_call_end>",
          "<tool_calls_start>[" + call + "]</tool_call_end>",
          begin + "[get_weather('Paris', 3)]" + end,
          begin + "[getWeather(city=\"Paris\", days=3]" + end,
          begin + R"([{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}])" + end,
      });
}

// No letter follows the closing quote of a Python string, so a quote before a letter is an
// apostrophe.
TEST(LoosePythonCallsTest, ApostrophesInPythonsTexts) {
  for (const std::string text :
       {"it's", "l'été d'Aix", "don't, won't) or can't]", "rock'n'roll", "5'11"}) {
    for (const auto& [format, begin, end] :
         {std::tuple{ToolCallFormat::kLfm2, "<|tool_call_start|>[", "]<|tool_call_end|>"},
          std::tuple{ToolCallFormat::kPythonic, "[", "]"},
          std::tuple{ToolCallFormat::kQwen, "<tool_call>", "</tool_call>"}}) {
      const std::vector<std::pair<std::string, LooseJson>> calls = {
          {"get_weather", {{"city", text}, {"days", 3}}}};
      expect_read({.calls = format}, begin + ("get_weather(city='" + text) + "', days=3)" + end,
                  {"", "", calls});
      const std::string list = "write_file(content=['" + text + "', 'b'], path='p')";
      expect_read({.calls = format}, begin + list + end,
                  {"", "", {{"write_file", {{"content", {text, "b"}}, {"path", "p"}}}}});
    }
  }
}

TEST(LoosePythonCallsTest, GemmaCalls) {
  const std::string whole =
      "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|>";
  const auto replaced = [&whole](std::string_view what, std::string_view with) {
    std::string text = whole;
    const size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what;
    return text.replace(place, what.size(), with);
  };
  expect_weather(
      ToolCallFormat::kGemma4,
      {
          whole,
          replaced("<|tool_call>", ""),
          replaced("<|tool_call>", "<|tool_call><|tool_call>"),
          replaced("<|tool_call>", "<|tool_call|>"),
          replaced("<|tool_call>", "<tool_call>"),
          replaced("<|tool_call>", "<|toolcall>\n"),
          replaced("call:", ""),
          replaced("call:", "call: "),
          replaced("get_weather", "functions.getWeather"),
          replaced("<tool_call|>", ""),
          replaced("<tool_call|>", "<tool_call|><tool_call|>"),
          replaced("<tool_call|>", "<|tool_call|>"),
          replaced("<tool_call|>", "</tool_call>"),
          replaced("<tool_call|>", "<tool_call|><|tool_response>"),
          replaced("}<tool_call|>", "<tool_call|>"),
          replaced("}<tool_call|>", ""),
          replaced("}<tool_call|>", "}}<tool_call|>"),
          replaced("}<tool_call|>", ",}<tool_call|>"),
          replaced("{city", "{{city"),
          replaced("{city", "{\"city\""),
          replaced("{city", "{<|\"|>city<|\"|>"),
          replaced("{city", "{ City"),
          replaced(",days", ",, \"days\""),
          replaced(",days", " \"days\""),
          replaced("<|\"|>Paris<|\"|>", "\"Paris\""),
          replaced("<|\"|>Paris<|\"|>", "'Paris'"),
          replaced("<|\"|>Paris<|\"|>", "Paris"),
          replaced("<|\"|>Paris<|\"|>", "<|\"|>Paris"),
          replaced("<|\"|>Paris<|\"|>", "<|\"|Paris<|\"|"),
          replaced("<|\"|>Paris<|\"|>", "Paris<|\"|>"),
          replaced(",days", " days"),
          replaced("city:<|\"|>Paris<|\"|>,days:", "city=<|\"|>Paris<|\"|>,days="),
          replaced("city:<|\"|>Paris<|\"|>,days:", "city = Paris, days = "),
          "<|tool_call>call:get_weather(city=<|\"|>Paris<|\"|>,days=3)<tool_call|>",
          "<|tool_call>call:get_weather(city: <|\"|>Paris<|\"|>, days: 3)<tool_call|>",
          "<|tool_call>call:get_weather(city=Paris, days=3)",
          "<|tool_call>call:get_weather(city='Paris', days=3<tool_call|>",
          "<|tool_call>call:get_weather\n{\n  city: <|\"|>Paris<|\"|>,\n  days: 3\n}\n<tool_call|>",
          "<|tool_call>call:get_weather{\"city\": \"Paris\", \"days\": 3}<tool_call|>",
          "<|tool_call>get_weather(city='Paris', days=3)<tool_call|>",
          R"(<|tool_call>{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}})",
          "```\n" + whole + "\n```",
      });
  expect_weather(ToolCallFormat::kGemma4, {"I look.\n" + whole.substr(12)}, "I look.");
  const std::vector<std::pair<std::string, LooseJson>> two = {
      {"write_file", {{"content", "x"}}}, {"write_file", {{"path", "p"}, {"content", "y"}}}};
  for (const std::string_view end : {"}<tool_call|>", "<tool_call|>", " }\n<tool_call|>"}) {
    const std::string city = end.starts_with(' ') ? "Paris " : "Paris";
    expect_read({.calls = ToolCallFormat::kGemma4},
                "<|tool_call>call:get_weather{days:3,city:<|\"|>Paris" + std::string(end),
                {"", "", {{"get_weather", {{"days", 3}, {"city", city}}}}});
  }
  // A text that is not closed swallows neither the next argument nor the next call.
  const std::string next = "<|tool_call>call:write_file{path:<|\"|>p<|\"|>,content:<|\"|>y<|\"|>}";
  for (const std::string_view end : {"}<tool_call|>", "<tool_call|>", " }<tool_call|>\n"}) {
    expect_read(
        {.calls = ToolCallFormat::kGemma4},
        "<|tool_call>call:write_file{content:<|\"|>x" + std::string(end) + next,
        {"", "", {{"write_file", {{"content", end == " }<tool_call|>\n" ? "x " : "x"}}}, two[1]}});
  }
  expect_read({.calls = ToolCallFormat::kGemma4},
              "<|tool_call>call:write_file{path:<|\"|>p,content:<|\"|>y<|\"|>}<tool_call|>",
              {"", "", {two[1]}});
  for (const std::string content :
       {"a,content:b", "}<tool_call|>", "x}, y", "<|\"", "a\"b'", "]}"}) {
    expect_read({.calls = ToolCallFormat::kGemma4},
                "<|tool_call>call:write_file{path:<|\"|>" + content +
                    "<|\"|>,content:<|\"|>y<|\"|>}<tool_call|>",
                {"", "", {{"write_file", {{"path", content}, {"content", "y"}}}}});
  }
  for (const std::string_view text :
       {"<|tool_call>call:now<tool_call|>", "<|tool_call>call:now", "<|tool_call>call:now()",
        "<|tool_call>call:now( )<tool_call|>", "<|tool_call>call:now\n{}\n<tool_call|>"}) {
    expect_read({.calls = ToolCallFormat::kGemma4}, text, {"", "", {{"now", LooseJson::object()}}});
  }
  for (const std::string_view arguments : {"days:3 city:<|\"|>Paris<|\"|>", "days:3\ncity:Paris",
                                           "days: 3  city=\"Paris\"", "(days=3 city=Paris)"}) {
    const std::string inside(arguments);
    const bool has_brackets = inside.starts_with('(');
    expect_read({.calls = ToolCallFormat::kGemma4},
                "<|tool_call>call:get_weather" + (has_brackets ? inside : "{" + inside + "}") +
                    "<tool_call|>",
                {"", "", {{"get_weather", {{"days", 3}, {"city", "Paris"}}}}});
  }
}

}  // namespace
}  // namespace heddle::parsers
