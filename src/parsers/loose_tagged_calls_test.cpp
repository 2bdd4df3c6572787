// SPDX-License-Identifier: Apache-2.0
// Calls whose arguments stand between tags, as models write them when they do not keep to their
// format: see loose_json_calls_test.cpp. A text that quotes tags keeps them.
#include "parsers/loose_calls_fixture.h"

namespace heddle::parsers {
namespace {

TEST(LooseTaggedCallsTest, QwenCoderParameters) {
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
          replaced("</parameter>", "</city>"),
          replaced("</parameter>\n</function>\n</tool_call>", "</days>"),
          call("<parameter=city>Paris</city><parameter=days>\n3\n</days>\n"),
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
          replaced("</tool_call>", "<tool_call/>"),
          replaced("</tool_call>", "/tool_call>"),
          replaced("<tool_call>", "<tool_call\t>"),
          replaced("<parameter=city>", "parameter=city>"),
          "<tool_call>\n<function=get_weather>\nparameter=city>\nParis\n</"
          "parameter>\nparameter=days>\n3\n"
          "</parameter>\n/function>\n/tool_call>",
          replaced("<parameter=days>", "parameter=days>"),
          replaced("<parameter=days>\n", ""),
          replaced("<parameter=days>", ""),
          replaced("\n3", "\n>3"),
          replaced("</function>", "</functon>"),
          replaced("</function>", "</function>\n</function>"),
          "<tool_call>\n<function=get_weather>\n{\"city\": \"Paris\", \"days\": 3}\n</function>",
      });
  std::string long_breaks = whole;
  for (size_t at = 0; (at = long_breaks.find('\n', at)) != std::string::npos; at += 2) {
    long_breaks.insert(at, "\r");
  }
  expect_weather(ToolCallFormat::kQwen3Coder, {long_breaks});
  // A value without its opening tag is that of the parameter that is left, unless this follows.
  const std::string file_begin = "<tool_call>\n<function=write_file>\n<parameter=";
  const std::string file_end = "\n</parameter>\n</function>\n</tool_call>";
  expect_read({.calls = ToolCallFormat::kQwen3Coder},
              file_begin + "path>\na\n</parameter>\nx\ny" + file_end,
              {"", "", {{"write_file", {{"path", "a"}, {"content", "x\ny"}}}}});
  expect_read(
      {.calls = ToolCallFormat::kQwen3Coder},
      file_begin + "content>\n<a>\n</parameter>\nx\n</parameter>\n<parameter=path>\np" + file_end,
      {"", "", {{"write_file", {{"content", "<a>\n</parameter>\nx"}, {"path", "p"}}}}});
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
  for (const std::string page : {"<content>\n</content>\n<path>a</path>\n</content",
                                 "<function>\n<content>x</content>\n</function>",
                                 "<content>\nx\n</content>\n</function>\n</b>"}) {
    expect_read({.calls = ToolCallFormat::kQwen3Coder},
                "<tool_call>\n<function=write_file>\n<parameter=content>\n" + page +
                    "\n</parameter>\n<parameter=path>a</path>\n</function>\n</tool_call>",
                {"", "", {{"write_file", {{"content", page}, {"path", "a"}}}}});
  }
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

TEST(LooseTaggedCallsTest, GlmKeysAndValues) {
  const std::string whole =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
  const auto replaced = [&whole](std::string_view what, std::string_view with) {
    std::string text = whole;
    const size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what;
    return text.replace(place, what.size(), with);
  };
  expect_weather(ToolCallFormat::kGlm,
                 {
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
                     replaced("<arg_key>", "arg_key>"),
                     replaced("<arg_key>days", "arg_key>days"),
                     replaced("</arg_value>\n</tool_call>", "</arg_value>\n/tool_call>"),
                     replaced("<arg_value>3", "<arg_value>>3"),
                     replaced("<arg_key>", "<arg_eky>"),
                     replaced("</arg_value>", "<arg_value>"),
                     replaced("</arg_value>", "</arg_value>>"),
                     replaced("get_weather", "\"get_weather\""),
                     replaced("get_weather", "getWeather"),
                 });
  expect_read({.calls = ToolCallFormat::kGlm}, "<tool_call>now",
              {"", "", {{"now", LooseJson::object()}}});
}

TEST(LooseTaggedCallsTest, DeepseekTags) {
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
                     replaced("<｜DSML｜parameter name=\"days\" string=\"false\">", ""),
                     replaced("</｜DSML｜function_calls>", "<｜DSML｜function_calls/>"),
                     replaced("</｜DSML｜invoke>", "/｜DSML｜invoke>"),
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

TEST(LooseTaggedCallsTest, MinimaxAndSeedTags) {
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
           {"<minimax:tool_call>", "<minmax:tool_call>"},
           {"</minimax:tool_call>", "</miniimax:tool_call>"},
           {"<parameter name=\"days\">", ""},
           {">3<", ">>3<"},
           {"</parameter>\n", ""},
           {"</parameter>\n", "</parametr>\n"},
           {"</parameter>\n", "</city>\n"},
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
           {"<seed:tool_call>", "<sede:tool_call>"},
           {"</seed:tool_call>", "</sed:tool_call>"},
           {"<parameter=days>", ""},
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

// A self-closing tag is a whole call, so a second one with the same name is a second call.
TEST(LooseTaggedCallsTest, CallsThatCloseThemselves) {
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

// A text that quotes calls keeps them, whatever is missing in what it quotes.
TEST(LooseTaggedCallsTest, ATextMayQuoteCalls) {
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
TEST(LooseTaggedCallsTest, ATextThatIsNotClosedEndsWhereItMay) {
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

}  // namespace
}  // namespace heddle::parsers
