// SPDX-License-Identifier: Apache-2.0
// Reasoning, and the messages of gpt-oss, as models write them when they do not keep to their
// format: a mark that is missing, doubled or misspelt costs itself only.
#include "parsers/loose_calls_fixture.h"

namespace heddle::parsers {
namespace {

TEST(LooseReasoningTest, HarmonyMessages) {
  const std::string arguments = R"({"city": "Paris", "days": 3})";
  const LooseJson object = LooseJson::parse(arguments);
  const LooseOptions options{.calls = ToolCallFormat::kHarmony,
                             .reasoning = ReasoningFormat::kHarmony};
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|>";
  const std::string to = "<|start|>assistant<|channel|>commentary to=functions.get_weather ";
  const std::string name = "<|start|>assistant<|channel|>commentary functions.get_weather ";
  for (const std::string& text : {
           thought + to + "<|constrain|>json<|message|>" + arguments + "<|call|>",
           thought + to + "json<|message|>" + arguments,
           thought + to + arguments + "<|call|>",
           thought + to + "<|constrain|>json<|message|><|message|>" + arguments +
               "}<|call|><|call|>",
           thought + to + "<|message|>{\"city\": \"Paris\", \"days\": 3<|call|>",
           thought + "<|channel|>commentary to=get_weather<|message|>" + arguments,
           thought + "assistant<|channel|>commentary to=functions.getWeather<|message|>" +
               arguments,
           "analysis<|message|>Hm.<|end|>" + to + "<|message|>" + arguments,
           "<|channel|>analysis Hm.<|end|>" + to + "<|message|>" + arguments,
           "<|channel|><|channel|>analysis<|message|>Hm." + to + "<|message|>" + arguments,
           "<|channel|>anlysis<|message|>Hm.<|end|><|end|>" + to + "<|message|>" + arguments,
           "<|channel>analysis<|message|>Hm.<|end|>" + to + "<|mesage|>" + arguments,
           "<|channel|>analysis<|message|>Hm.<|message|><|end|>" + to + "<|message|>" + arguments,
           "<|start|>assistant" + thought + to + "<|message|>" + arguments + "<|return|>",
           thought + to + "<|constrain|>json" + arguments + "<|call|>",
           thought + to + "json" + arguments,
           thought + to + "<|constrain|>" + arguments + "<|call|>",
           thought + to + "<|constrained|>json<|messge|>" + arguments + "<|call|>\n",
           thought + to + "<|constrain|>>json<|message|>>" + arguments + "<|call|",
           thought + to + "<|type|>json<|msg|>" + arguments,
           thought + to + "<constrain>json<message>" + arguments + "<|call|>",
           thought + to + "<|constrain|\t>json<|message" + arguments,
           thought + to + "<|message|" + arguments,
           thought + "<|channel|>commentary to=functions.get_weather" + arguments + "<|call|>",
           thought + "<|channel|>commentary to=functions.get_weather.call<|message|>" + arguments,
           thought + "<|channel|>commentary to=functions_get_weather<|message|>" + arguments,
           thought + to + "<|message|>{\"City\": \"Paris\", \"days\": 3}<|call|>",
           // Without "to=".
           thought + name + "<|constrain|>json<|message|>" + arguments + "<|call|>",
           thought + name + arguments + "<|call|>",
           thought + name + "json<|message|>" + arguments,
           thought + "<|channel|>commentary get_weather<|message|>" + arguments,
           thought + "<|channel|>commentary get_weather " + arguments,
           thought + "<|channel|>functions.get_weather<|message|>" + arguments,
           thought + "<|channel|>commentary to = functions.get_weather<|message|>" + arguments,
           thought + "<|channel|>commentary to functions.get_weather json" + arguments,
           thought + "<|channel|>commentary to: get_weather<|constrain|>json" + arguments,
           // A closing tag in the header.
           thought + to + "</think><|message|>" + arguments + "<|call|>",
           thought + to + "<|constrain|>json</|message|>" + arguments,
           thought + to + "<|message|></think>" + arguments + "<|call|>",
           "<|channel|>analysis</analysis><|message|>Hm.<|end|>" + to + "<|message|>" + arguments,
           "<|channel|>analysis Hm.<|channel|>commentary functions.get_weather " + arguments,
       }) {
    expect_read(options, text, {"", "Hm.", {{"get_weather", object}}});
  }
  // A message to a tool without a body is a call without arguments.
  const std::string now = "<|channel|>commentary to=functions.now";
  for (const std::string& text :
       {thought + now + "<|call|>", thought + now, thought + now + "<|end|>",
        thought + now + "<|message|>", thought + now + "<|constrain|>json<|message|><|call|>",
        thought + now + " <|constrain|>json<|call|>", thought + now + " json",
        thought + "<|channel|>commentary functions.now<|call|>",
        thought + "<|channel|>commentary now<|call|>",
        thought + "<|channel|>commentary functions.now",
        thought + "<|start|>assistant to=functions.now<|channel|>commentary<|call|>"}) {
    expect_read(options, text, {"", "Hm.", {{"now", LooseJson::object()}}});
  }
  for (const std::string_view next :
       {"<|start|>assistant<|channel|>final<|message|>Yes", "<|channel|>final<|message|>Yes",
        "<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>"}) {
    expect_read(options, thought + now + std::string(next),
                {"Yes", "Hm.", {{"now", LooseJson::object()}}});
    expect_read(options, thought + "<|channel|>commentary functions.now" + std::string(next),
                {"Yes", "Hm.", {{"now", LooseJson::object()}}});
  }
  expect_read({.calls = options.calls, .reasoning = options.reasoning, .end = TextEnd::kCut},
              thought + now, {"", "Hm.", {}});
  // Words of a text.
  for (const std::string_view text :
       {"now I look", "functions.now is a tool", "now", "to functions.now I say no", "to now"}) {
    expect_read(options, thought + "<|channel|>commentary " + std::string(text),
                {std::string(text), "Hm.", {}});
    expect_read(options, thought + "<|channel|>final " + std::string(text) + "<|return|>",
                {std::string(text), "Hm.", {}});
    expect_read(options, thought + std::string(text), {std::string(text), "Hm.", {}});
  }
  for (const std::string& text : {
           thought + "<|start|>assistant<|channel|>final<|message|>Yes<|return|>",
           thought + "<|channel|>final Yes",
           thought + "final<|message|>Yes",
           thought + "<|start|>assistant<|message|>Yes<|end|><|end|>",
           thought + "Yes",
           thought + "<|start|><|start|>assistant<|channel|>finl<|message|>Yes<|constrain|>",
           thought + "<|channel|>final</think><|message|>Yes",
       }) {
    expect_read(options, text, {"Yes", "Hm.", {}});
  }
}

TEST(LooseReasoningTest, MessagesThatFollowEachOtherAreSeparated) {
  const LooseOptions options{.calls = ToolCallFormat::kHarmony,
                             .reasoning = ReasoningFormat::kHarmony};
  const std::string look = "<|channel|>commentary<|message|>I look.";
  const std::string yes = "<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>";
  expect_read(options, look + yes, {"I look.\n\nYes", "", {}});
  expect_read(options, look + "\n" + yes, {"I look.\nYes", "", {}});
  expect_read(options, look + "<|end|><|channel|>final<|message|>\nYes", {"I look.\nYes", "", {}});
  expect_read(options, look + "<|end|><|channel|>final<|message|><|end|>", {"I look.", "", {}});
  expect_read(options,
              "<|channel|>analysis<|message|>Hm.<|end|>" + look +
                  "<|end|><|channel|>analysis<|message|>Well." + yes,
              {"I look.\n\nYes", "Hm.\n\nWell.", {}});
}

TEST(LooseReasoningTest, TagsOfReasoning) {
  struct Case {
    ReasoningFormat format;
    std::string text;
    bool inside = false;
  };

  using enum ReasoningFormat;
  for (const Case& one : std::vector<Case>{
           {kThink, "<think>\nHm.\n</think>\n\nYes"},
           {kThink, "<thinking>\nHm.\n</thinking>\n\nYes"},
           {kThink, "<think\nHm.\n</think\nYes"},
           {kThink, "<|think|>\nHm.\n<|/think|>\nYes"},
           {kThink, "<Think>Hm.\n</Think>Yes"},
           {kThink, "<think>>Hm.\n</think>>Yes"},
           {kThink, "<think>>\nHm.\n</think>>\n\nYes"},
           {kThink, "<think\t>Hm.\n</think\t>Yes"},
           {kThink, "<thinking>Hm.\n</thinking>Yes"},
           {kThink, "<think>Hm.\n</ think >Yes"},
           {kThink, "<think >Hm.\n</think >Yes"},
           {kThink, "<think>Hm.\n< /think>Yes"},
           {kThink, "<think>\n<think>\nHm.\n</think>\n</think>\nYes"},
           {kThink, "<think>\nHm.\n</think>\n<think>\n</think>\nYes"},
           {kThink, "</think>\nYes", true},
           {kThink, "Hm.\n</thnk>\nYes", true},
           {kThink, "Hm.\n<\\/think>\nYes", true},
           {kThinkFromStart, "<think>Hm.\n</think>Yes", true},
           {kThinkFromStart, "Hm.\n</ think>\nYes", true},
           {kKimi, "◁think▷Hm.\n◁/think▷Yes"},
           {kKimi, "◁think▷Hm.\n</think>\nYes"},
           {kMistral, "[THINK]Hm.\n[/THINK]Yes"},
           {kMistral, "[THINK][THINK]Hm.\n[/THINK][/THINK]\nYes"},
           {kMistral, "[think]Hm.\n[/think]\nYes"},
           {kGemma, "<|channel>thought\nHm.\n<channel|>Yes"},
           {kGemma, "<|channel>thought\n\n<|channel>thought\nHm.\n<channel|><channel|>Yes"},
           {kGemma, "<|channel|>thought\nHm.\n<|channel|>Yes"},
           {kGemma, "<channel>thought\nHm.\n</channel>\nYes"},
           {kGemma, "<|channel>Hm.\n<channel|>Yes"},
           {kGemma, "<|chanel>thought\nHm.\n<chanel|>Yes"},
           {kGemma, "<|channels>thought\nHm.\n<channels|>Yes"},
           {kGemma, "<|channel>Thoughts\nHm.\n<channel|>Yes"},
           {kGemma, "<|channel>thinking\nHm.\n<|chanel|>\nYes"},
           {kGemma, "<|channel>thougt\nHm.\n<channel|>Yes"},
           {kGemma, "<|channel>thought\n<channel|>\nYes"},
           {kSeed, "<seed:think>Hm.\n</seed:think>\nYes"},
           {kSeed, "<seed:think>\n<seed:think>Hm.\n</seed:think></seed:think>Yes"},
           {kSeed, "<think>Hm.\n</think>Yes"},
           {kSeed, "<seed:thinking>Hm.\n</seed:thnk>\nYes"},
           {kSeed, "Hm.\n</seed:think>Yes", true},
           {kCohere,
            "<|START_THINKING|>Hm.\n<|END_THINKING|><|START_RESPONSE|>Yes<|END_RESPONSE|>"},
           {kCohere, "<|START_THINKING|>Hm.\n<|END_THINKING|><|START_TEXT|>Yes"},
           {kCohere, "<START_THINKING>Hm.\n<|END_THINKING>\nYes<|END_TEXT|>"},
           {kCohere, "<|START_THINKING|><|START_THINKING|>Hm.\n<|END_THINK|><|END_THINKING|>Yes"},
           {kCohere, "Hm.\n<|END_THINKING|>Yes", true},
           {kCohere, "<|START_THINKING|>Hm.\n<|START_RESPONSE|>Yes<|END_RESPONSE|>"},
           {kCohere, "<|START_THINKING|>Hm.\n<|START_TEXT|>Yes"},
           {kGranite, "<think>Hm.\n<response>Yes</response>"},
           {kGranite, "<think>Hm.\n</think>\n<response>Yes</response>"},
           {kGranite, "<think>Hm.\n</think>\n\n<response>\nYes"},
           {kGranite, "<thinking>Hm.\n</thinking>Yes"},
           {kGranite, "<response>Yes</response>"},
       }) {
    const std::string thought = one.text.find("Hm") == std::string::npos ? "" : "Hm.\n";
    expect_read({.reasoning = one.format, .inside = one.inside}, one.text, {"Yes", thought, {}});
  }
  // Within a line, too, a tag that is near to the right one ends it, unless it is only named.
  for (const std::string_view tag : {"</think>", "</ think >", "</thinking>", "</Think>",
                                     "</thought>", "<|/think|>", "</thnk>"}) {
    expect_read({.reasoning = kThink}, "<think>Hm." + std::string(tag) + "Yes", {"Yes", "Hm.", {}});
    expect_read({.reasoning = kThinkFromStart, .inside = true}, "Hm." + std::string(tag) + "Yes",
                {"Yes", "Hm.", {}});
  }
  expect_read({.reasoning = kThink}, "<thought>A `</thinking>` tag.</thought>Yes",
              {"Yes", "A `</thinking>` tag.", {}});
  // One that the reasoning quotes does not end it, unless the quote before it closes another one.
  for (const std::string_view thought :
       {"A `</think>` tag.", "A \"</think>\" tag.", "`a` and `</think>`, \"b\"\n`</think>`"}) {
    const std::string text = std::string(thought) + "</think>\nYes";
    expect_read({.reasoning = kThink}, "<think>" + text, {"Yes", std::string(thought), {}});
    expect_read({.reasoning = kThinkFromStart, .inside = true}, text,
                {"Yes", std::string(thought), {}});
  }
  for (const auto& [text, content, thought] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"say `x`</think>`y`", "`y`", "say `x`"},
           {"`a\n`b`</think>`", "`", "`a\n`b`"},
           {"```\n</think>\n```", "```", "```\n"},
           {"Hm. `</think> a", " a", "Hm. `"},
           {"Hm.</think>> a", "> a", "Hm."},
           {"Hm.</think>>>> a", ">>> a", "Hm."}}) {
    expect_read({.reasoning = kThink}, "<think>" + text, {content, thought, {}});
  }
  expect_read({.reasoning = kThink, .is_forced = true}, "<think>`</think>`>a", {"`>a", "`", {}});
  expect_read({.reasoning = kThink, .is_forced = true}, "<think>Hm.</think>>a", {">a", "Hm.", {}});
  for (const std::string_view named :
       {"\"</channel>", "`<channel>`", "a </channel> b", "(<|channel|>"}) {
    expect_read({.reasoning = kGemma}, "<|channel>thought\nHm. " + std::string(named) + "x",
                {"", "Hm. " + std::string(named) + "x", {}});
  }
  // Without its opening tag reasoning is content, which a stream has shown before the closing tag
  // comes. That is none, unless the prompt or the format says that the answer began inside.
  for (const auto& [text, content] :
       std::vector<std::pair<std::string, std::string>>{{"Hm.\n</think>\n\nYes", "Hm.\n\n\nYes"},
                                                        {"Hm. </think>Yes", "Hm. Yes"},
                                                        {"Hm. </think>\nYes", "Hm. \nYes"},
                                                        {"Hm.</think>Yes", "Hm.Yes"},
                                                        {"Hm.</think> Yes", "Hm. Yes"},
                                                        {"Hm. </think>日本", "Hm. 日本"}}) {
    for (const auto calls : {ToolCallFormat::kNone, ToolCallFormat::kQwen}) {
      expect_read({.calls = calls, .reasoning = kThink}, text, {content, "", {}});
      const size_t tag = text.find('<');
      const std::string_view answer = std::string_view(text).substr(tag + 8);
      expect_read(
          {.calls = calls, .reasoning = kThinkFromStart, .inside = true}, text,
          {std::string(answer.substr(std::min(answer.find_first_not_of('\n'), answer.size()))),
           text.substr(0, tag),
           {}});
    }
  }
  expect_read({.reasoning = kMistral}, "Hm. [/THINK]Yes", {"Hm. Yes", "", {}});
  expect_read({.reasoning = kKimi}, "Hm. ◁/think▷Yes", {"Hm. Yes", "", {}});
  expect_read({.calls = ToolCallFormat::kQwen, .reasoning = kThink},
              "Hm. </think><tool_call>\n{\"name\": \"now\"}\n</tool_call>",
              {"Hm.", "", {{"now", LooseJson::object()}}});
  expect_read({.reasoning = kThink}, "Write \"</think>Yes\"", {"Write \"</think>Yes\"", "", {}});
  expect_read({.reasoning = kThink}, "The </think> tag", {"The </think> tag", "", {}});
  // The first letter of a misspelt tag is right.
  expect_read({.reasoning = kThink}, "[◁/vhink▷lw", {"[◁/vhink▷lw", "", {}});
  expect_read({.reasoning = kThink, .inside = true}, "Hm.\n</hhink>\n",
              {"", "Hm.\n</hhink>\n", {}});
  expect_read({.reasoning = kThink, .inside = true}, "<a></thing> `</a>`\n</think>Yes",
              {"Yes", "<a></thing> `</a>`\n", {}});
}

// An opening tag that begins a line begins reasoning also behind content.
TEST(LooseReasoningTest, ReasoningMayFollowContent) {
  using enum ReasoningFormat;
  const std::string block = "<think>\nHm.\n</think>\n";
  for (const auto calls : {ToolCallFormat::kNone, ToolCallFormat::kQwen, ToolCallFormat::kGlm}) {
    const LooseOptions options{.calls = calls, .reasoning = kThink};
    expect_read(options, "Sure.\n" + block + "\nYes", {"Sure.\nYes", "Hm.\n", {}});
    expect_read(options, "Sure.\n\n<think>Hm.</think>Yes", {"Sure.\n\nYes", "Hm.", {}});
    expect_read(options, block + "Sure.\n" + block + "Yes", {"Sure.\nYes", "Hm.\nHm.\n", {}});
    expect_read(options, block + "Sure.\n" + block + "Yes.\n" + block + "No",
                {"Sure.\nYes.\nNo", "Hm.\nHm.\nHm.\n", {}});
    for (const std::string& text :
         {std::string("The <think> tag"), std::string("Sure. <think>Hm"), "```\n" + block + "```",
          std::string("`<think>`\n`</think>`"), std::string("a\n<thin")}) {
      expect_read(options, text, {text, "", {}});
    }
  }
  expect_read({.reasoning = kMistral}, "Sure.\n[THINK]Hm.[/THINK]Yes", {"Sure.\nYes", "Hm.", {}});
  expect_read({.reasoning = kKimi}, "Sure.\n◁think▷Hm.◁/think▷Yes", {"Sure.\nYes", "Hm.", {}});
  // A call swallows the line break before the reasoning as it does that before itself.
  expect_read(
      {.calls = ToolCallFormat::kQwen, .reasoning = kThink},
      "Sure.\n" + block + "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n" + block + "Yes",
      {"Sure.\nYes", "Hm.\nHm.\n", {{"now", LooseJson::object()}}});
}

TEST(LooseReasoningTest, ACallInsideReasoningLeavesNothingOfItsMarks) {
  const LooseOptions options{.calls = ToolCallFormat::kQwen, .reasoning = ReasoningFormat::kThink};
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n";
  const std::vector<std::pair<std::string, LooseJson>> now = {{"now", LooseJson::object()}};
  expect_read(options, "<think>\nHm.\n" + call + "</think>\n", {"", "Hm.\n", now});
  expect_read(options, "<think>\nHm.\n" + call + "</think>\n\nYes", {"Yes", "Hm.\n", now});
  expect_read(options, "<think>\nHm.\n" + call, {"", "Hm.\n", now});
  expect_read(options, "<think>\nHm.\n" + call + "More.\n</think>\nYes",
              {"Yes", "Hm.\nMore.\n", now});
  expect_read(options, "<think>\nHm.\n" + call + call + "</think>",
              {"", "Hm.\n", {now[0], now[0]}});
  expect_read({.calls = ToolCallFormat::kQwen3Coder, .reasoning = ReasoningFormat::kThink},
              "<think>Hm.\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n</think>\n",
              {"", "Hm.\n", now});
  expect_read({.calls = ToolCallFormat::kKimiK2, .reasoning = ReasoningFormat::kThink},
              "<think>Hm.\n<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
              "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|></think>",
              {"", "Hm.\n", now});
}

}  // namespace
}  // namespace heddle::parsers
