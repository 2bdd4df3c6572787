// SPDX-License-Identifier: Apache-2.0
// Calls whose arguments are JSON, as models write them when they do not keep to their format: a
// mark that is missing, doubled or misspelt costs itself only. Each text has one call of
// get_weather and nothing else that a client sees.
#include "parsers/loose_calls_fixture.h"

namespace heddle::parsers {
namespace {

TEST(LooseJsonCallsTest, QwenObjects) {
  const std::string object =
      R"({"name": "get_weather", "arguments": {"city": "Paris", "days": 3}})";
  const std::string open = R"({"name": "get_weather", "arguments": {"city": "Paris", "days": 3)";
  const auto tagged = [](const std::string& inside) {
    return "<tool_call>\n" + inside + "\n</tool_call>";
  };
  expect_weather(
      ToolCallFormat::kQwen,
      {
          // Marks that are missing, doubled, misspelt.
          object,
          object + "\n</tool_call>",
          "<tool_call>\n" + object,
          "<tool_call>\n<tool_call>\n" + object + "\n</tool_call>\n</tool_call>",
          tagged(object) + "\n<tool_call>",
          "<toolcall>" + object + "</toolcall>",
          "<tool_call\n" + object + "\n</tool_call",
          "<|tool_call|>" + object + "<|/tool_call|>",
          "<tool_call>>" + object + "</tool_call>>",
          "<tool-call>" + object + "<\\/tool_call>",
          "< tool_call>\n" + object + "\n<//tool_call>",
          "<tool_call\t>\n" + object + "\n<tool_call/>",
          "<tool_call>\n" + object + "\n/tool_call>",
          "<tool call>\n" + object + "\n</tool call>",
          "<tool_call1>\n" + object + "\n</tool_call1>",
          "<tool_call\n>\n" + object + "\n</tool_call\n>",
          "<tool_calls>\n" + object + "\n</tool_calls>",
          "<function_call>" + object,
          tagged("```json\n" + object + "\n```"),
          tagged("[" + object + "]"),
          // Braces and commas too many or too few.
          tagged(object + "}"),
          tagged(object + ","),
          tagged(object + "}},"),
          tagged(open),
          tagged(open + "}"),
          tagged(open + ",}}"),
          tagged(open + "]}}"),
          tagged(R"({"name": "get_weather", "arguments": {"city": "Paris" "days": 3}})"),
          tagged(R"({"name": "get_weather", "arguments": {"city": "Paris",, "days": 3}},})"),
          "<tool_call>" + open,
          // Python's strings, arguments as a text, names written otherwise.
          tagged("{'name': 'get_weather', 'arguments': {'city': 'Paris', 'days': 3}}"),
          tagged(R"({"name": "get_weather", "arguments": "{\"city\": \"Paris\", \"days\": 3}"})"),
          tagged(R"({"arguments": "{\"city\": \"Paris\", \"days\": 3}", "name": "get_weather"})"),
          tagged(R"({"name": "functions.get_weather", "arguments": {"city": "Paris", "days": 3}})"),
          tagged(R"({"name": "Get-Weather", "arguments": {"city": "Paris", "days": 3}})"),
          tagged(R"({"name": "get_wether", "parameters": {"city": "Paris", "days": 3}})"),
          tagged(R"({"type": "function", "function": {"name": "get_weather", "arguments": {"city":)"
                 R"( "Paris", "days": 3}}})"),
          tagged(R"({"tool": "get_weather", "args": {"city": "Paris", "days": 3}})"),
          tagged(R"({"name": "get_weather", "params": {"city": "Paris", "days": 3}})"),
          tagged(R"({"Name": "get_weather", "Arguments": {"city": "Paris", "days": 3}})"),
          tagged(R"({"toolName": "get_weather", "tool_input": {"city": "Paris", "days": 3}})"),
          tagged(R"({name: "get_weather", arguments: {city: "Paris", "days": 3}})"),
          tagged(R"({"name": "gte_weather", "arguments": {"city": "Paris", "days": 3}})"),
          // Comments, and a name that the arguments tell.
          tagged("{\"name\": \"get_weather\", \"arguments\": {\n  // where\n  \"city\": "
                 "\"Paris\", /* how long * */\n  \"days\": 3 // of them\n}}"),
          tagged(R"({"arguments": {"city": "Paris", "days": 3}})"),
          tagged(R"({"city": "Paris", "days": 3})"),
      });
  expect_weather(ToolCallFormat::kQwen,
                 {"I look.\n" + object + "\n</tool_call>", "I look.\n<toolcall>" + object},
                 "I look.");
  expect_read({.calls = ToolCallFormat::kQwen}, "<tool_call>\n</tool_call>\nNothing.",
              {"\n\nNothing.", "", {}});
  // White space after an object that lacks its closing brace belongs to the text after it.
  expect_read({.calls = ToolCallFormat::kQwen},
              "<tool_call>{\"name\": \"now\", \"arguments\": {},  Yes",
              {"  Yes", "", {{"now", LooseJson::object()}}});
}

TEST(LooseJsonCallsTest, DeepseekSections) {
  const std::string begin = "<｜tool▁calls▁begin｜>";
  const std::string call = "<｜tool▁call▁begin｜>";
  const std::string sep = "<｜tool▁sep｜>";
  const std::string end = "<｜tool▁call▁end｜>";
  const std::string over = "<｜tool▁calls▁end｜>";
  const std::string object = R"({"city": "Paris", "days": 3})";
  const std::string fenced = "get_weather\n```json\n" + object + "\n```";
  expect_weather(
      ToolCallFormat::kDeepseekV3,
      {
          begin + call + "function" + sep + fenced + end + over,
          begin + "function" + sep + fenced + end + over,
          call + "function" + sep + fenced + end,
          "function" + sep + fenced + end + over,
          begin + call + "function\n" + fenced + end + over,
          begin + call + "function" + sep + fenced,
          begin + call + fenced + end + over,
          begin + begin + call + call + "function" + sep + sep + fenced + end + end + over + over,
          begin + call + "get_weather" + sep + object + end + over,
          begin + "get_weather" + sep + object + end + over,
          "get_weather" + sep + object + end,
          begin + call + "get_weather" + object + end + over,
          begin + call + "get_weather" + sep + "{\"city\": \"Paris\", \"days\": 3" + end + over,
          begin + call + "get_weather" + sep + object + "}" + end + over,
          "<|tool_calls_begin|><|tool_call_begin|>get_weather<|tool_sep|>" + object +
              "<|tool_call_end|><|tool_calls_end|>",
          "<｜tool calls begin｜><｜tool call begin｜>function<｜tool sep｜>" + fenced +
              "<｜tool call end｜><｜tool calls end｜>",
          "<｜tool▁calls▁begn｜>" + call + "get_weather<｜tool▁sep>" + object + over,
      });
  // A list of several is a call of each.
  const std::string listed = "get_weather" + sep + "[" + object + ", " + object + "]";
  const LooseJson paris = LooseJson::parse(object);
  expect_read({.calls = ToolCallFormat::kDeepseekV3}, begin + call + listed + end + over,
              {"", "", {{"get_weather", paris}, {"get_weather", paris}}});
  expect_read({.calls = ToolCallFormat::kDeepseekV3}, begin + call + "now```json" + end + over,
              {"", "", {{"now", LooseJson::object()}}});
}

TEST(LooseJsonCallsTest, KimiSections) {
  const std::string begin = "<|tool_calls_section_begin|>";
  const std::string call = "<|tool_call_begin|>";
  const std::string sep = "<|tool_call_argument_begin|>";
  const std::string end = "<|tool_call_end|>";
  const std::string over = "<|tool_calls_section_end|>";
  const std::string name = "functions.get_weather:0";
  const std::string object = R"({"city": "Paris", "days": 3})";
  expect_weather(ToolCallFormat::kKimiK2,
                 {
                     begin + call + name + sep + object + end + over,
                     begin + name + sep + object + end + over,
                     call + name + sep + object + end,
                     name + sep + object + end + over,
                     begin + call + name + object + end + over,
                     begin + call + name + sep + object,
                     begin + call + name + sep + object + over,
                     begin + begin + call + call + name + sep + sep + object + end + end + over,
                     "<|tool_call_section_begin|>" + call + name + sep + object + end +
                         "<|tool_call_section_end|>",
                     begin + call + "get_weather:0" + sep + object + end + over,
                     begin + call + "functions.getweather:0" + sep + object + "}" + end + over,
                     begin + call + name + "<|tool_call_arguments_begin|>" + object + end + over,
                 });
  // A name alone, or before a quotation, is prose.
  for (const std::string_view text : {"functions.now", "functions.now \"{}\" is not"}) {
    expect_read({.calls = ToolCallFormat::kKimiK2}, text, {std::string(text), "", {}});
  }
}

TEST(LooseJsonCallsTest, LlamaObjectsAndPython) {
  const std::string object =
      R"({"name": "get_weather", "parameters": {"city": "Paris", "days": 3}})";
  expect_weather(
      ToolCallFormat::kLlama3,
      {
          object,
          "<|python_tag|>" + object,
          "<|python_tag|><|python_tag|>" + object,
          "<|python_tag>" + object,
          "<|pythontag|>" + object,
          "<|python tag|>" + object,
          object + "}",
          object + ";",
          "<|python_tag|>get_weather.call(city=\"Paris\", days=3)",
          "<|python_tag|>get_weather(city='Paris', days=3)",
          "<|python_tag|>get_weather.call(\"Paris\", 3)",
          "<|python_tag|>get_weather.call(city=\"Paris\", days=3",
          R"({"name": "get_weather", "parameters": "{\"city\": \"Paris\", \"days\": 3}"})",
          R"({"type": "function", "name": "get_weather", "parameters": {"city": "Paris", "days": 3})",
      });
  expect_weather(ToolCallFormat::kLlama3, {"Sure.\n" + object}, "Sure.");
}

TEST(LooseJsonCallsTest, MistralLists) {
  const std::string object =
      R"({"name": "get_weather", "arguments": {"city": "Paris", "days": 3}})";
  const std::string arguments = R"({"city": "Paris", "days": 3})";
  expect_weather(
      ToolCallFormat::kMistral,
      {
          "[TOOL_CALLS][" + object + "]",
          "[TOOL_CALLS]" + object,
          "[" + object + "]",
          "[TOOL_CALLS][" + object,
          "[TOOL_CALLS][TOOL_CALLS][" + object + "]]",
          "[TOOL_CALL][" + object + "]",
          "[tool_calls] [" + object + "]",
          "[TOOL_CALLS]get_weather[ARGS]" + arguments,
          "get_weather[ARGS]" + arguments,
          "[TOOL_CALLS]get_weather" + arguments,
          "[TOOL_CALLS]get_weather[ARGS][ARGS]" + arguments,
          "[TOOL_CALLS]]get_weather[ARGS]]" + arguments,
          "[TOOL_CALLS]get_weather[ARGS]" + arguments + "}",
          "[TOOL_CALLS]get_weather[ARGS]\"{\\\"city\\\": \\\"Paris\\\", \\\"days\\\": 3}\"",
          "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\", \"days\": 3",
          "[TOOL_CALLS]get-weather[CALL_ID]abcDEF123[ARGS]" + arguments + "[/TOOL_CALLS]",
          "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\", \"days\": 3[/TOOL_CALLS]",
          "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\", \"days\": 3[TOOL_C",
      });
  // The next call's mark ends arguments that lack their bracket, also where it comes in pieces.
  const LooseJson object_read = LooseJson::parse(arguments);
  expect_read({.calls = ToolCallFormat::kMistral},
              "[TOOL_CALLS]now[ARGS]{[TOOL_CALLS]get_weather[ARGS]" + arguments,
              {"", "", {{"now", LooseJson::object()}, {"get_weather", object_read}}});
}

TEST(LooseJsonCallsTest, ObjectsInMarkedLists) {
  const std::string object =
      R"({"name": "get_weather", "arguments": {"city": "Paris", "days": 3}})";
  const std::string cohere =
      R"({"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris", "days": 3}})";
  for (const auto& [format, begin, end, one] :
       {std::tuple{ToolCallFormat::kGranite, std::string("<|tool_call|>"), std::string(), object},
        std::tuple{ToolCallFormat::kNemotronV2, std::string("<TOOLCALL>"),
                   std::string("</TOOLCALL>"), object},
        std::tuple{ToolCallFormat::kCohere, std::string("<|START_ACTION|>"),
                   std::string("<|END_ACTION|>"), cohere}}) {
    SCOPED_TRACE(to_string(format));
    const std::string list = "[" + one + "]";
    const std::string open = one.substr(0, one.size() - 2);
    expect_weather(format, {
                               begin + list + end,
                               begin + "\n[\n    " + one + "\n]\n" + end,
                               begin + one + end,
                               list + end,
                               one,
                               begin + list,
                               begin + "[" + one + end,
                               begin + begin + list + end + end,
                               begin + list + "]" + end,
                               begin + "[" + one + ",]" + end,
                               begin + "[" + open + end,
                               begin + "[" + open + "]" + end,
                               begin + "[" + open + "}}}]" + end,
                               begin + "```json\n" + list + "\n```" + end,
                               "<tool_call>" + list + "</tool_call>",
                               "<" + begin.substr(begin[1] == '|' ? 2 : 1) + list,
                           });
    expect_weather(format, {"Sure.\n" + begin + list + end, "Sure.\n\n" + list}, "Sure.");
    const std::string prose = R"([{"name": "Ann", "age": 3}])";
    expect_read({.calls = format}, prose, {prose, "", {}});
  }
}

TEST(LooseJsonCallsTest, AListOfNoCallsSaysNothing) {
  for (const auto& [format, text] : std::vector<std::pair<ToolCallFormat, std::string>>{
           {ToolCallFormat::kNemotronV2, "<TOOLCALL>[]</TOOLCALL>"},
           {ToolCallFormat::kNemotronV2, "<TOOLCALL> [ ] \n</TOOLCALL>"},
           {ToolCallFormat::kGranite, "<|tool_call|>[]"},
           {ToolCallFormat::kGranite, "<|tool_call|>\n[\n]"},
           {ToolCallFormat::kCohere, "<|START_ACTION|>[]<|END_ACTION|>"},
           {ToolCallFormat::kLfm2, "<|tool_call_start|>[]<|tool_call_end|>"},
           {ToolCallFormat::kPythonic, "<|python_start|>[]<|python_end|>"},
           {ToolCallFormat::kMistral, "[TOOL_CALLS][]"},
           {ToolCallFormat::kQwen, "<tool_call>\n[]\n</tool_call>"}}) {
    expect_read({.calls = format}, text, {"", "", {}});
    expect_read({.calls = format}, "Nothing to do." + text, {"Nothing to do.", "", {}});
  }
  for (const std::string text : {"Use <TOOLCALL>[] as a list.", "<TOOLCALL>[1]", "x = []"}) {
    expect_read({.calls = ToolCallFormat::kNemotronV2}, text, {text, "", {}});
  }
}

// Arguments of one reading, in every format that has them in JSON.
TEST(LooseJsonCallsTest, SignsOfOtherNotations) {
  const std::vector<std::string> objects = {
      R"({"city"="Paris", "days"=3})",
      R"({"city" => "Paris", "days" => 3})",
      R"({city = "Paris", days = 3})",
      R"({"city":: "Paris", "days": : 3})",
      R"({"city": "Paris"; "days": 3})",
      R"({"city": "Paris";; "days": 3;})",
      R"({"city"： "Paris"， "days"：3})",
      R"({"city": "Paris"；"days": 3})",
      R"({"city": "Paris", "days": +3})",
      R"({"city": """Paris""", "days": 3})",
      R"({'city': """Paris""", 'days': 3})",
      R"({'city': '''Paris''', 'days': 3})",
      R"({\"city\": \"Paris\", \"days\": 3})",
      R"({ \"city\" : \"Paris\",\"days\":3 })",
      R"({city: Paris, days: 3})",
      R"({"city": "Paris", "days": 3)})",
      R"([{"city": "Paris", "days": 3}])",
      R"([ {"city": "Paris", "days": 3}, ])",
      R"("{\"city\": \"Paris\", \"days\": 3}")",
  };
  const LooseOptions harmony{.calls = ToolCallFormat::kHarmony,
                             .reasoning = ReasoningFormat::kHarmony};
  const LooseJson arguments = {{"city", "Paris"}, {"days", 3}};
  const std::vector<std::pair<std::string, LooseJson>> calls = {{"get_weather", arguments}};
  for (const std::string& object : objects) {
    const std::string call = R"({"name": "get_weather", "arguments": )" + object + "}";
    expect_weather(ToolCallFormat::kQwen, {"<tool_call>\n" + call + "\n</tool_call>"});
    expect_weather(ToolCallFormat::kLlama3, {call, "<|python_tag|>" + call});
    expect_weather(ToolCallFormat::kMistral,
                   {"[TOOL_CALLS]get_weather[ARGS]" + object, "[TOOL_CALLS][" + call + "]"});
    expect_weather(ToolCallFormat::kDeepseekV3, {"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" +
                                                 object + "<｜tool▁call▁end｜>"});
    expect_weather(ToolCallFormat::kKimiK2,
                   {"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" +
                    object + "<|tool_call_end|>"});
    expect_weather(ToolCallFormat::kGranite, {"<|tool_call|>[" + call + "]"});
    expect_read(harmony,
                "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" +
                    object + "<|call|>",
                {"", "", calls});
  }
  // JSON that has such signs in its texts keeps them.
  for (const std::string_view content :
       {"a = b; c => d", R"(x: \"\"\"y\"\"\")", "，：；", R"(\\\")", "", "'''"}) {
    const std::string written = R"({"path": "p; q", "content": ")" + std::string(content) + "\"}";
    expect_read({.calls = ToolCallFormat::kQwen},
                R"(<tool_call>{"name": "write_file", "arguments": )" + written + "}</tool_call>",
                {"", "", {{"write_file", LooseJson::parse(written)}}});
  }
  // A text between three quotes has quotes and brackets of its own.
  const std::string inside = "a \"b\", c\n}";
  expect_read({.calls = ToolCallFormat::kQwen},
              R"(<tool_call>{"name": "write_file", "arguments": {"content": """)" + inside +
                  R"(""", "path": "p"}}</tool_call>)",
              {"", "", {{"write_file", {{"content", inside}, {"path", "p"}}}}});
}

// The object around the arguments may be there once more within them.
TEST(LooseJsonCallsTest, ArgumentsWithinArguments) {
  const std::string object = R"({"city": "Paris", "days": 3})";
  for (const std::string_view word : {"arguments", "parameters", "properties"}) {
    const std::string nested = "{ \"" + std::string(word) + "\" : " + object + "}";
    const std::string call = R"({"name": "get_weather", "arguments": )" + nested + "}";
    expect_weather(ToolCallFormat::kQwen, {"<tool_call>\n" + call + "\n</tool_call>"});
    expect_weather(ToolCallFormat::kMistral, {"[TOOL_CALLS]get_weather[ARGS]" + nested});
    expect_weather(ToolCallFormat::kKimiK2,
                   {"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" +
                    nested + "<|tool_call_end|>"});
  }
  // A tool that lists no parameters may have one of that name.
  expect_read({.calls = ToolCallFormat::kQwen},
              R"(<tool_call>{"name": "now", "arguments": {"arguments": {"x": 1}}}</tool_call>)",
              {"", "", {{"now", {{"arguments", {{"x", 1}}}}}}});
}

}  // namespace
}  // namespace heddle::parsers
