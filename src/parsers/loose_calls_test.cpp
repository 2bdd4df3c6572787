// SPDX-License-Identifier: Apache-2.0
// Calls and reasoning as models write them when they do not keep to their format: a mark that is
// missing, doubled or misspelt costs itself only. Each text has one call of get_weather and nothing
// else that a client sees.
#include "parsers/loose_calls_fixture.h"

namespace heddle::parsers {
namespace {

TEST(LooseCallsTest, QwenObjects) {
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

TEST(LooseCallsTest, QwenCoderParameters) {
  const auto call = [](const std::string& inside) {
    return "<tool_call>\n<function=get_weather>\n" + inside + "</function>\n</tool_call>";
  };
  const std::string city = "<parameter=city>\nParis\n</parameter>\n";
  const std::string days = "<parameter=days>\n3\n</parameter>\n";
  const std::string whole = call(city + days);
  const auto replaced = [&whole](std::string_view what, std::string_view with) {
    std::string text = whole;
    const size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what;
    return text.replace(place, what.size(), with);
  };
  expect_weather(
      ToolCallFormat::kQwen3Coder,
      {
          whole,
          replaced("</parameter>\n", ""),
          call(city + "<parameter=days>\n3\n"),
          call("<parameter=city>Paris<parameter=days>3"),
          replaced("</parameter>", "</parameter/>"),
          replaced("</parameter>", "</parameter1>"),
          replaced("</parameter>", "</parametr>"),
          replaced("</parameter>", "</parameter"),
          replaced("</parameter>", "</parameter=city>"),
          replaced("</parameter>", "</parameter>>"),
          replaced("</parameter>", "<//parameter>"),
          replaced("</parameter>", "</parameter\n>"),
          replaced("</parameter>", "<parameter>"),
          replaced("</function>", "<function>"),
          replaced("</parameter>", "</parameter>\n</parameter>"),
          replaced("</function>\n", ""),
          replaced("\n</tool_call>", ""),
          replaced("</function>\n</tool_call>", ""),
          replaced("</parameter>\n</function>\n</tool_call>", ""),
          "<tool_call>\n<function=get_weather>\n" + city + "<parameter=days>\n3",
          replaced("<tool_call>\n", ""),
          replaced("<tool_call>", "<tool_call>\n<tool_call>"),
          replaced("<tool_call>", "<toolcall>"),
          replaced("<tool_call>", "<tool_call"),
          replaced("<function=get_weather>", "<function=\"get_weather\">"),
          replaced("<function=get_weather>", "<function='get_weather'>"),
          replaced("<function=get_weather>", "<function name=\"get_weather\">"),
          replaced("<function=get_weather>", "<function = get_weather >"),
          replaced("<function=get_weather>", "<function=get_weather"),
          replaced("<function=get_weather>", "<function=get_weather>\n<function=get_weather>"),
          replaced("<function=get_weather>", "<funtion=getWeather>"),
          replaced("<function=get_weather>\n", ""),
          replaced("<parameter=city>", "<parameter=\"city\">"),
          replaced("<parameter=city>", "<parameter name=\"city\">"),
          replaced("<parameter=city>", "<parameter=City>"),
          replaced("<parameter=city>", "<paramter=city>"),
          replaced("<parameter=city>", "< parameter=city>"),
          replaced("<parameter=city>", "<parameter=city>>"),
          replaced("<parameter=city>", "<parameter=city\n>"),
          replaced("<function=get_weather>", "< function=gte_weather>"),
          replaced("<function=get_weather>", "<function=get_weather\n>"),
          replaced("<parameter=city>", "<parameter=city>\n<parameter=city>"),
          replaced("</tool_call>", "</tool_call>\n</tool_call>"),
          replaced("</tool_call>", "</toolcall>"),
          replaced("</function>", "</functon>"),
          replaced("</function>", "</function>\n</function>"),
          "<tool_call>\n<function=get_weather>\n{\"city\": \"Paris\", \"days\": 3}\n</function>",
      });
  std::string long_breaks = whole;
  for (size_t at = 0; (at = long_breaks.find('\n', at)) != std::string::npos; at += 2) {
    long_breaks.insert(at, "\r");
  }
  expect_weather(ToolCallFormat::kQwen3Coder, {long_breaks});
  // A value of its own line breaks keeps them.
  expect_read({.calls = ToolCallFormat::kQwen3Coder},
              "<tool_call>\n<function=write_file>\n<parameter=content>\na\r\nb\r\n</parameter>\n"
              "</function>\n</tool_call>",
              {"", "", {{"write_file", {{"content", "a\r\nb\r"}}}}});
  // A file with such tags stays whole.
  const std::string file = "<a>\n</parameter>\n<b>\n<parameter=other>\n</function> x\n</a>";
  expect_read({.calls = ToolCallFormat::kQwen3Coder},
              "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n"
              "<parameter=content>\n" +
                  file + "\n</parameter>\n</function>\n</tool_call>",
              {"", "", {{"write_file", {{"path", "a"}, {"content", file}}}}});
  // A tag inside of a line ends a value of one line only.
  expect_read({.calls = ToolCallFormat::kQwen3Coder},
              "<tool_call>\n<function=write_file>\n<parameter=path>\na\nb <parameter=content>\nc\n"
              "</parameter>\n</function>\n</tool_call>",
              {"", "", {{"write_file", {{"path", "a\nb <parameter=content>\nc"}}}}});
  // An empty value and the call end where the answer does.
  expect_read({.calls = ToolCallFormat::kQwen3Coder},
              "<tool_call>\n<function=write_file>\n<parameter=path</function>",
              {"", "", {{"write_file", {{"path", ""}}}}});
  expect_read({.calls = ToolCallFormat::kQwen3Coder},
              "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>",
              {"", "", {{"now", LooseJson::object()}, {"now", LooseJson::object()}}});
}

// A text that quotes calls keeps them, whatever is missing in what it quotes.
TEST(LooseCallsTest, ATextMayQuoteCalls) {
  const std::string now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  const std::string weather =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
      "</tool_call>";
  const std::string unknown =
      "<tool_call>\n<function=other>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>";
  const std::string nested = "<tool_call>\n<function=write_file>\n<parameter=content>\n" + weather +
                             "\n</parameter>\n</function>\n</tool_call>";
  const auto file_call = [](const std::string& content) {
    return "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n"
           "<parameter=content>\n" +
           content + "\n</parameter>\n</function>\n</tool_call>";
  };
  for (const std::string& file : std::vector<std::string>{
           now,
           weather,
           unknown,
           nested,
           weather.substr(weather.find("<function=get")),
           "Two:\n" + now + "\n" + weather + "\nEnd.",
           weather + weather,
           "  " + weather + "  x",
           "prompt = \"" + weather + "\"",
           "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
           "Ends with\n</function>\n</tool_call>\nand more.",
           "</tool_call>\n",
           "<function=now>",
           "The <function=now> tag and <tool_call>.",
           "```\n" + now + "\n```",
       }) {
    const LooseJson arguments = {{"path", "a"}, {"content", file}};
    expect_read({.calls = ToolCallFormat::kQwen3Coder}, file_call(file),
                {"", "", {{"write_file", arguments}}});
    expect_read({.calls = ToolCallFormat::kQwen3Coder}, file_call(file) + "\n" + now + "\nDone.",
                {"\nDone.", "", {{"write_file", arguments}, {"now", LooseJson::object()}}});
  }
  const std::string glm =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n"
      "<arg_value>Paris</arg_value>\n</tool_call>";
  expect_read({.calls = ToolCallFormat::kGlm},
              "<tool_call>write_file\n<arg_key>content</arg_key>\n<arg_value>" + glm +
                  "\n</arg_value>\n</tool_call>",
              {"", "", {{"write_file", {{"content", glm + "\n"}}}}});
  const std::string invoke =
      "<｜DSML｜invoke name=\"get_weather\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">Paris"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>";
  expect_read({.calls = ToolCallFormat::kDeepseekV32},
              "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"write_file\">\n"
              "<｜DSML｜parameter name=\"content\" string=\"true\">" +
                  invoke + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
              {"", "", {{"write_file", {{"content", invoke}}}}});
}

// A value without a closing tag swallows neither the next call nor the text after it.
TEST(LooseCallsTest, ATextThatIsNotClosedEndsWhereItMay) {
  const std::string begin = "<tool_call>\n<function=write_file>\n<parameter=content>\nx";
  const std::string now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  const std::string weather =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
      "</tool_call>";
  const std::pair<std::string, LooseJson> file = {"write_file", {{"content", "x"}}};
  const std::pair<std::string, LooseJson> city = {"get_weather", {{"city", "Paris"}}};
  const std::pair<std::string, LooseJson> none = {"now", LooseJson::object()};
  const LooseOptions options{.calls = ToolCallFormat::kQwen3Coder};
  for (const std::string& ends : std::vector<std::string>{
           "\n", "\n</function>\n", "\n</tool_call>\n", "\n</function>\n</tool_call>\n"}) {
    expect_read(options, begin + ends + now, {"", "", {file, none}});
    expect_read(options, begin + ends + weather, {"", "", {file, city}});
    expect_read(options, begin + ends + weather + "\n" + now, {"", "", {file, city, none}});
    expect_read(options, begin + ends + weather + "\nDone.", {"\nDone.", "", {file, city}});
    if (ends.size() > 1) expect_read(options, begin + ends + "Done.", {"\nDone.", "", {file}});
  }
  // A number quotes nothing.
  expect_read(options, "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n" + weather,
              {"", "", {{"get_weather", {{"days", 3}}}, city}});
}

TEST(LooseCallsTest, GlmKeysAndValues) {
  const std::string whole =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
  const auto replaced = [&whole](std::string_view what, std::string_view with) {
    std::string text = whole;
    const size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what;
    return text.replace(place, what.size(), with);
  };
  expect_weather(ToolCallFormat::kGlm, {
                                           whole,
                                           replaced("\n<arg_value>", ""),
                                           replaced("<arg_value>", ""),
                                           replaced("</arg_key>", ""),
                                           replaced("<arg_key>", ""),
                                           replaced("</arg_value>", ""),
                                           replaced("</arg_value>\n</tool_call>", "\n</tool_call>"),
                                           replaced("\n</tool_call>", ""),
                                           replaced("</arg_value>\n</tool_call>", ""),
                                           replaced("<tool_call>", ""),
                                           replaced("<tool_call>get_weather", "get_weather()"),
                                           replaced("<tool_call>", "<tool_call>\n<tool_call>"),
                                           replaced("<tool_call>", "<toolcall>"),
                                           replaced("<arg_key>", "<argkey>"),
                                           replaced("</arg_value>", "</arg_val>"),
                                           replaced("</arg_value>", "</arg_value"),
                                           replaced("</arg_value>", "</arg_value></arg_value>"),
                                           replaced("<arg_value>", "<arg_value><arg_value>"),
                                           replaced("<arg_key>", "<arg_key><arg_key>"),
                                           replaced("</tool_call>", "</tool_call></tool_call>"),
                                           replaced("</tool_call>", "</toolcall>"),
                                           replaced("</tool_call>", "<tool_call>"),
                                           replaced("<arg_key>", "<arg_key>\n"),
                                           replaced("</arg_key>", "\n</arg_key>>"),
                                           replaced("</arg_key>", "<arg_key>"),
                                           replaced("<arg_key>", "<arg key>"),
                                           replaced("<arg_key>", "<arg_eky>"),
                                           replaced("</arg_value>", "<arg_value>"),
                                           replaced("</arg_value>", "</arg_value>>"),
                                           replaced("get_weather", "\"get_weather\""),
                                           replaced("get_weather", "getWeather"),
                                       });
  expect_read({.calls = ToolCallFormat::kGlm}, "<tool_call>now",
              {"", "", {{"now", LooseJson::object()}}});
}

TEST(LooseCallsTest, DeepseekSections) {
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
  // A bracket is no name.
  const std::string listed = "get_weather" + sep + "[" + object + "]";
  expect_read({.calls = ToolCallFormat::kDeepseekV3}, begin + call + listed + end + over,
              {listed, "", {}});
  expect_read({.calls = ToolCallFormat::kDeepseekV3}, begin + call + "now```json" + end + over,
              {"", "", {{"now", LooseJson::object()}}});
}

TEST(LooseCallsTest, DeepseekTags) {
  const std::string whole =
      "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  const auto replaced = [&whole](std::string_view what, std::string_view with) {
    std::string text = whole;
    const size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what;
    return text.replace(place, what.size(), with);
  };
  expect_weather(ToolCallFormat::kDeepseekV32,
                 {
                     whole,
                     replaced("<｜DSML｜function_calls>\n", ""),
                     replaced("</｜DSML｜parameter>\n", ""),
                     replaced("</｜DSML｜invoke>\n", ""),
                     replaced("\n</｜DSML｜function_calls>", ""),
                     replaced("</｜DSML｜parameter>\n</｜DSML｜invoke>", "\n</｜DSML｜invoke>"),
                     replaced(" string=\"false\"", ""),
                     replaced(" string=\"true\"", ""),
                     replaced("name=\"get_weather\"", "name=get_weather"),
                     replaced("name=\"get_weather\"", "name='functions.get_weather'"),
                     replaced("<｜DSML｜invoke", "<|DSML|invoke"),
                     replaced("<｜DSML｜invoke", "<DSML｜invoke"),
                     replaced("</｜DSML｜parameter>", "</｜DSML｜parametr>"),
                     replaced("</｜DSML｜parameter>", "</｜DSML｜parameter></｜DSML｜parameter>"),
                     replaced("<｜DSML｜function_calls>",
                              "<｜DSML｜function_calls>\n<｜DSML｜function_calls>"),
                 });
}

TEST(LooseCallsTest, KimiSections) {
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

TEST(LooseCallsTest, LlamaObjectsAndPython) {
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

TEST(LooseCallsTest, MistralLists) {
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

TEST(LooseCallsTest, PythonicLists) {
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

TEST(LooseCallsTest, Lfm2Lists) {
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
TEST(LooseCallsTest, ApostrophesInPythonsTexts) {
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

TEST(LooseCallsTest, GemmaCalls) {
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

// A self-closing tag is a whole call, so a second one with the same name is a second call.
TEST(LooseCallsTest, CallsThatCloseThemselves) {
  const std::vector<std::pair<std::string, LooseJson>> twice = {{"now", LooseJson::object()},
                                                                {"now", LooseJson::object()}};
  for (const auto& [format, call] : std::vector<std::pair<ToolCallFormat, std::string>>{
           {ToolCallFormat::kMinimaxM2, "<invoke name=\"now\"/>"},
           {ToolCallFormat::kMinimaxM2, "<invoke name=\"now\" />"},
           {ToolCallFormat::kSeedOss, "<function=now/>"},
           {ToolCallFormat::kQwen3Coder, "<function=now/>"},
           {ToolCallFormat::kQwen3Coder, "<function name=\"now\"/>"},
           {ToolCallFormat::kDeepseekV32, "<invoke name=\"now\"/>"}}) {
    for (const std::string_view between : {"", "\n", "\n\n"}) {
      const std::string two = call + std::string(between) + call;
      expect_read({.calls = format}, two, {"", "", twice});
      expect_read({.calls = format}, "Yes.\n" + two + "\n", {"Yes.", "", twice});
    }
  }
}

TEST(LooseCallsTest, AListOfNoCallsSaysNothing) {
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

TEST(LooseCallsTest, MinimaxAndSeedTags) {
  const auto replaced = [](std::string text, std::string_view what, std::string_view with) {
    const size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what;
    return text.replace(place, what.size(), with);
  };
  const std::string minimax =
      "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris"
      "</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>";
  for (const auto& [what, with] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"<minimax:tool_call>\n", ""},
           {"<parameter name=\"city\">", "<parameter name=\"city\""},
           {"<invoke name=\"get_weather\">", "< invoke name=\"get_weather\">"},
           {"</parameter>", "</parameter>>"},
           {"</parameter>", "<parameter>"},
           {"</invoke>", "<invoke>"},
           {"<minimax:tool_call>", "<minimax:tool_call>\n<minimax:tool_call>"},
           {"<minimax:tool_call>", "<minimax:toolcall>"},
           {"<minimax:tool_call>", "<tool_call>"},
           {"</parameter>\n", ""},
           {"</parameter>\n", "</parametr>\n"},
           {"</parameter>\n", "</parameter></parameter>\n"},
           {"</invoke>\n", ""},
           {"</invoke>\n", "</invok>\n"},
           {"\n</minimax:tool_call>", ""},
           {"</minimax:tool_call>", "</minimax:tool_calls>"},
           {"</minimax:tool_call>", "</minimax:tool_call></minimax:tool_call>"},
           {"name=\"get_weather\"", "name='functions.get_weather'"},
           {"<invoke name=\"get_weather\">\n", ""},
           {"name=\"city\"", "name=City"}}) {
    expect_weather(ToolCallFormat::kMinimaxM2, {replaced(minimax, what, with)});
  }
  const std::string seed =
      "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
      "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>";
  for (const auto& [what, with] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"<seed:tool_call>\n", ""},
           {"<seed:tool_call>", "<seed:tool_call>\n<seed:tool_call>"},
           {"<seed:tool_call>", "<seed:toolcall>"},
           {"<seed:tool_call>", "<tool_call>"},
           {"</parameter>\n", ""},
           {"</parameter>\n", "</parameter>"},
           {"</parameter>\n", "</parameter/>\n"},
           {"</function>\n", ""},
           {"\n</seed:tool_call>", ""},
           {"</seed:tool_call>", "</seed:tool_calls>"},
           {"</seed:tool_call>", "</tool_call>"},
           {"<function=get_weather>", "<function=\"getWeather\">"},
           {"<function=get_weather>\n", ""},
           {"<parameter=city>", "<parameter name=\"city\">"}}) {
    expect_weather(ToolCallFormat::kSeedOss, {replaced(seed, what, with)});
  }
}

TEST(LooseCallsTest, ObjectsInMarkedLists) {
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

TEST(LooseCallsTest, HarmonyMessages) {
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
       }) {
    expect_read(options, text, {"Yes", "Hm.", {}});
  }
}

TEST(LooseCallsTest, MessagesThatFollowEachOtherAreSeparated) {
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

TEST(LooseCallsTest, TagsOfReasoning) {
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
TEST(LooseCallsTest, ReasoningMayFollowContent) {
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

TEST(LooseCallsTest, ACallInsideReasoningLeavesNothingOfItsMarks) {
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
