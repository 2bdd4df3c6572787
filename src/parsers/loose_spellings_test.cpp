// SPDX-License-Identifier: Apache-2.0
// Calls that are written as another format's, or as no format's, between marks that say what is
// meant. Each text has one call of get_weather and nothing else that a client sees.
#include "parsers/loose_calls_fixture.h"

namespace heddle::parsers {
namespace {

using enum ToolCallFormat;

const std::string kObject = R"({"name": "get_weather", "arguments": {"city": "Paris", "days": 3}})";
const std::string kArguments = R"({"city": "Paris", "days": 3})";
const std::string kPythonCall = R"(get_weather(city="Paris", days=3))";

std::string in_tags(const std::string& inside) {
  return "<tool_call>\n" + inside + "\n</tool_call>";
}

struct JsonFormat {
  ToolCallFormat format;
  std::string begin;
  std::string end;

  [[nodiscard]] LooseOptions options() const {
    return {.calls = format,
            .reasoning = format == kHarmony ? ReasoningFormat::kHarmony : ReasoningFormat::kNone};
  }
};

// Calls of write_file, every format with JSON arguments.
std::vector<JsonFormat> json_formats() {
  return {
      {kQwen, "<tool_call>\n{\"name\": \"write_file\", \"arguments\": ", "}\n</tool_call>"},
      {kLlama3, "{\"name\": \"write_file\", \"parameters\": ", "}"},
      {kMistral, "[TOOL_CALLS]write_file[ARGS]", ""},
      {kMistral, "[TOOL_CALLS][{\"name\": \"write_file\", \"arguments\": ", "}]"},
      {kDeepseekV3, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write_file<｜tool▁sep｜>",
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {kKimiK2, "<|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>",
       "<|tool_call_end|>"},
      {kHarmony, "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>",
       "<|call|>"},
      {kGlm, "<tool_call>write_file\n", "\n</tool_call>"},
      {kGranite, "<|tool_call|>[{\"name\": \"write_file\", \"arguments\": ", "}]"},
      {kNemotronV2, "<TOOLCALL>[{\"name\": \"write_file\", \"arguments\": ", "}]</TOOLCALL>"},
      {kCohere,
       "<|START_ACTION|>[{\"tool_name\": \"write_file\", \"parameters\": ", "}]<|END_ACTION|>"},
  };
}

// A value that has quotes of its own.
TEST(LooseSpellingsTest, QuotesInTextsNeedNoBackslash) {
  for (const JsonFormat& format : json_formats()) {
    for (const std::string_view content :
         {R"(say "hi" now)", R"("hi" he said)", R"(he said "hi")", R"(print("a", "b"))",
          R"(<p class="a">b</p>)", R"({"a": "b"})", R"("a", "b" and c)"}) {
      const std::string value(content);
      const LooseOptions options = format.options();
      expect_read(options,
                  format.begin + R"({"path": "x", "content": ")" + value + "\"}" + format.end,
                  {"", "", {{"write_file", {{"path", "x"}, {"content", value}}}}});
      expect_read(options,
                  format.begin + R"({"content": ")" + value + R"(", "path": "x"})" + format.end,
                  {"", "", {{"write_file", {{"content", value}, {"path", "x"}}}}});
    }
  }
}

// One quote too few, in every format with JSON arguments.
TEST(LooseSpellingsTest, QuotesMayBeMissing) {
  const std::vector<std::string> objects = {
      R"({"city": "Paris, "days": 3})",  R"({"city": Paris", "days": 3})",
      R"({"city: "Paris", "days": 3})",  R"({city": "Paris", "days": 3})",
      R"({"city": "Paris", "days: 3})",  R"({"city": "Paris", days": 3})",
      R"({city: "Paris", days: 3})",     R"({"city": Paris, "days": 3})",
      R"({'city': 'Paris, 'days': 3})",  R"({'city': Paris", 'days': 3})",
      R"({"city': "Paris", 'days": 3})", R"({"city": "Paris', "days": 3})",
      R"({"city": 'Paris", "days": 3})", R"({"City": "Paris, "Days": 3})",
      R"({"city": "Paris" "days": 3})",
  };
  for (const std::string& object : objects) {
    expect_weather(kQwen, {in_tags(R"({"name": "get_weather", "arguments": )" + object + "}")});
    expect_weather(kLlama3, {R"({"name": "get_weather", "parameters": )" + object + "}"});
    expect_weather(kMistral, {"[TOOL_CALLS]get_weather[ARGS]" + object});
    expect_weather(kDeepseekV3, {"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + object +
                                 "<｜tool▁call▁end｜>"});
    expect_weather(kKimiK2, {"<|tool_call_begin|>functions.get_weather:0"
                             "<|tool_call_argument_begin|>" +
                             object + "<|tool_call_end|>"});
    expect_weather(kHarmony, {"<|channel|>commentary to=functions.get_weather<|message|>" + object +
                              "<|call|>"});
    expect_weather(kGlm, {"<tool_call>get_weather\n" + object + "\n</tool_call>"});
    expect_weather(kGranite,
                   {"<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": " + object + "}]"});
    expect_weather(kNemotronV2, {"<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": " + object +
                                 "}]</TOOLCALL>"});
    expect_weather(kCohere, {"<|START_ACTION|>[{\"tool_name\": \"get_weather\", \"parameters\": " +
                             object + "}]<|END_ACTION|>"});
  }
  expect_weather(kQwen, {in_tags(R"({"name": "get_weather, "arguments": )" + kArguments + "}")});
  // A text that only looks so keeps what it says.
  for (const std::string_view content :
       {R"(use {'a': 1, 'path': 2})", R"(a, \"path\": \"b\")", R"(a, path: b)",
        R"({\"a\": \"b\", \"path\": 1})", R"(it's 'x', 'path': 1)"}) {
    const LooseJson value = LooseJson::parse("\"" + std::string(content) + "\"");
    expect_read({.calls = kQwen},
                in_tags(R"({"name": "write_file", "arguments": {"content": ")" +
                        std::string(content) + R"(", "path": "x"}})"),
                {"", "", {{"write_file", {{"content", value}, {"path", "x"}}}}});
  }
  expect_read(
      {.calls = kQwen},
      in_tags(R"({"name": "write_file", "arguments": {'content': 'x = {"a": 1, "path": 2}',)"
              R"( 'path': 'y'}})"),
      {"", "", {{"write_file", {{"content", R"(x = {"a": 1, "path": 2})"}, {"path", "y"}}}}});
}

TEST(LooseSpellingsTest, TheLastQuoteMayBeMissing) {
  const std::pair<const char*, LooseJson> kContents[] = {
      {R"("Paris})", "Paris"},
      {R"("a {b} c})", "a {b} c"},
      {R"("x[0] = {}})", "x[0] = {}"},
      {"\"Paris\n  }", "Paris"},
      {R"('Paris})", "Paris"},
      {R"("C:\\dir\\})", "C:\\dir\\"},
      {R"(["a", "b]})", {"a", "b"}},
      {R"({"k": "v}})", {{"k", "v"}}},
      {R"([{"k": ["v]}]})", {{{"k", {"v"}}}}},
  };
  for (const JsonFormat& format : json_formats()) {
    for (const auto& [written, content] : kContents) {
      const std::string call = format.begin + R"({"path": "x", "content": )" + written + format.end;
      expect_read(format.options(), call,
                  {"", "", {{"write_file", {{"path", "x"}, {"content", content}}}}});
    }
  }
  const auto call_of = [](const std::string& arguments) {
    return in_tags(R"({"name": "write_file", "arguments": )" + arguments + "}");
  };
  expect_read({.calls = kQwen}, call_of(R"({"path": "x})") + "\n" + call_of(R"({"path": "y"})"),
              {"", "", {{"write_file", {{"path", "x"}}}, {"write_file", {{"path", "y"}}}}});
  expect_read({.calls = kQwen}, call_of(R"({"path": "x})") + R"( It is "done".)",
              {R"( It is "done".)", "", {{"write_file", {{"path", "x"}}}}});
  // A string that has such an end inside.
  for (const std::string content :
       {"}}</tool_call>", "a}} </tool_call> b", "{a}}</tool_call>{", "}", "}}", "a}, b"}) {
    expect_read({.calls = kQwen}, call_of(R"({"content": ")" + content + R"(", "path": "x"})"),
                {"", "", {{"write_file", {{"content", content}, {"path", "x"}}}}});
    expect_read({.calls = kQwen}, call_of(R"({"path": "x", "content": ")" + content + R"("})"),
                {"", "", {{"write_file", {{"path", "x"}, {"content", content}}}}});
  }
}

// Where the answer was cut behind a bracket of a text, the text would have gone on. In JSON the
// call is whole as soon as its object is.
TEST(LooseSpellingsTest, ACallThatIsCutInsideOfATextIsNotWhole) {
  const std::pair<std::string_view, LooseJson> kJson[] = {
      {R"("smile :} and ]} more")", "smile :} and ]} more"},
      {R"("}}\n]")", "}}\n]"},
      {R"(["a] b", "c}}"])", {"a] b", "c}}"}},
      {R"({"k": ["v]} w"]})", {{"k", {"v]} w"}}}},
      {R"("}</tool_call> a")", "}</tool_call> a"},
      {R"("```\n}\n```")", "```\n}\n```"}};
  const std::pair<std::string_view, LooseJson> kLoose[] = {{R"("{"a": "b"}")", R"({"a": "b"})"},
                                                           {R"("[{"a": "b"}]")", R"([{"a": "b"}])"},
                                                           {R"("say "hi"}")", R"(say "hi"})"}};
  for (const JsonFormat& format : json_formats()) {
    const auto expect_whole_alone = [&](std::string_view content, const LooseJson& value,
                                        bool is_forced, bool is_json) {
      const std::string arguments = R"({"path": "x", "content": )" + std::string(content) + "}";
      const std::string text = format.begin + arguments + format.end;
      LooseOptions options = format.options();
      options.end = TextEnd::kCut;
      options.is_forced = is_forced;
      for (size_t size = 1; size <= text.size(); ++size) {
        const std::string_view cut = std::string_view(text).substr(0, size);
        const AssembledAnswer whole = read_loosely(options, cut, size, /*keeps_call_text=*/true);
        const AssembledAnswer streamed = read_loosely(options, cut, 1, /*keeps_call_text=*/false);
        ASSERT_EQ(whole.calls.size(), streamed.calls.size()) << cut;
        if (whole.calls.empty()) continue;
        const ToolCall& call = whole.calls.front();
        EXPECT_EQ(call.complete, streamed.calls.front().complete) << cut;
        EXPECT_EQ(call.arguments, streamed.calls.front().arguments) << cut;
        if (is_json) {
          EXPECT_EQ(call.complete, size >= format.begin.size() + arguments.size()) << cut;
        }
        if (!call.complete) continue;
        EXPECT_EQ(LooseJson::parse(call.arguments, nullptr, false),
                  LooseJson({{"path", "x"}, {"content", value}}))
            << cut;
      }
    };
    for (const auto& [content, value] : kJson) {
      expect_whole_alone(content, value, /*is_forced=*/false, /*is_json=*/true);
      expect_whole_alone(content, value, /*is_forced=*/true, /*is_json=*/true);
    }
    for (const auto& [content, value] : kLoose) {
      expect_whole_alone(content, value, /*is_forced=*/false, /*is_json=*/false);
    }
  }
}

// The same behind closing tags of a text between tags.
TEST(LooseSpellingsTest, ACallThatIsCutInsideOfATaggedTextIsNotWhole) {
  const struct {
    ToolCallFormat format;
    std::string begin;
    std::string end;
    std::vector<std::string> marks;  // inside of the text
  } kFormats[] = {
      {kQwen3Coder,
       "<tool_call>\n<function=write_file>\n<parameter=content>\n",
       "\n</parameter>\n</function>\n</tool_call>",
       {"</function>", "</tool_call>", "</function>\n</tool_call>"}},
      {kGlm,
       "<tool_call>write_file\n<arg_key>content</arg_key>\n<arg_value>",
       "</arg_value>\n</tool_call>",
       {"</tool_call>"}},
      {kDeepseekV32,
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"write_file\">\n"
       "<｜DSML｜parameter name=\"content\" string=\"true\">",
       "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       {"</｜DSML｜invoke>", "</｜DSML｜function_calls>"}},
  };

  for (const auto& [format, begin, end, marks] : kFormats) {
    for (const std::string& mark : marks) {
      const std::string content = "a\n" + mark + "\nb";
      const std::string text = begin + content + end;
      for (const bool is_forced : {false, true}) {
        for (size_t size = 1; size <= text.size(); ++size) {
          const std::string_view cut = std::string_view(text).substr(0, size);
          for (const size_t piece : {size, size_t{1}}) {
            const AssembledAnswer answer =
                read_loosely({.calls = format, .end = TextEnd::kCut, .is_forced = is_forced}, cut,
                             piece, /*keeps_call_text=*/piece == size);
            const bool is_complete = !answer.calls.empty() && answer.calls.front().complete;
            EXPECT_TRUE(is_complete || size < text.size()) << cut;
            if (!is_complete) continue;
            EXPECT_EQ(LooseJson::parse(answer.calls.front().arguments),
                      LooseJson({{"content", content}}))
                << cut;
          }
        }
      }
    }
  }
}

// Raw line breaks, a closing bracket in the text, a fence, and quotes after it.
TEST(LooseSpellingsTest, TextsWithBracketsAndFencesKeepTheirEnd) {
  const std::string content =
      "```c\nint f() {\n  return 0;\n}\n```\nThen run \"make\" and \"make test\".";
  for (const JsonFormat& format : json_formats()) {
    const std::string call =
        format.begin + R"({"path": "x", "content": ")" + content + "\"}" + format.end;
    expect_read(format.options(), call,
                {"", "", {{"write_file", {{"path", "x"}, {"content", content}}}}});
  }
}

TEST(LooseSpellingsTest, DoubledBraces) {
  expect_weather(
      kQwen,
      {
          in_tags(R"({{"name": "get_weather", "arguments": {{"city": "Paris", "days": 3}}}})"),
          in_tags(R"({{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}})"),
          in_tags(R"({"name": "get_weather", "arguments": {{"city": "Paris", "days": 3}}})"),
          in_tags(R"({{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}}})"),
      });
  expect_weather(kLlama3,
                 {R"({{"name": "get_weather", "parameters": {{"city": "Paris", "days": 3}}}})"});
  expect_weather(kMistral, {"[TOOL_CALLS]get_weather[ARGS]{{\"city\": \"Paris\", \"days\": 3}}"});
}

TEST(LooseSpellingsTest, ArgumentsBesideTheName) {
  const std::string name = R"("name": "get_weather")";
  expect_weather(kQwen, {
                            in_tags("{" + name + R"(, "city": "Paris", "days": 3})"),
                            in_tags(R"({"city": "Paris", "days": 3, )" + name + "}"),
                            in_tags(R"({"city": "Paris", )" + name + R"(, "days": 3})"),
                            in_tags("{" + name + R"(, "City": "Paris", "days": 3})"),
                            in_tags(R"({"type": "function", "function": {)" + name +
                                    R"(, "city": "Paris", "days": 3}})"),
                            in_tags(R"({"tool": "get_weather", "city": "Paris", "days": 3})"),
                        });
  expect_weather(kLlama3, {"{" + name + R"(, "city": "Paris", "days": 3})"});
  expect_weather(kMistral, {"[TOOL_CALLS][{" + name + R"(, "city": "Paris", "days": 3}])"});
  // Without a mark, and of keys that are no parameters, an object is what it says.
  for (const std::string& text :
       {"{" + name + R"(, "city": "Paris"})", std::string(R"({"name": "now", "city": "Paris"})")}) {
    expect_read({.calls = kQwen}, text, {text, "", {}});
  }
}

TEST(LooseSpellingsTest, ArgumentsInOtherCase) {
  const std::string arguments = R"({"City": "Paris", "DAYS": 3})";
  const std::string escaped = R"("{\"City\": \"Paris\", \"Days\": 3}")";
  expect_weather(kQwen, {in_tags(R"({"name": "get_weather", "arguments": )" + arguments + "}"),
                         in_tags(R"({"arguments": )" + arguments + R"(, "name": "get_weather"})"),
                         in_tags(R"({"name": "get_weather", "arguments": )" + escaped + "}")});
  expect_weather(kMistral, {"[TOOL_CALLS]get_weather[ARGS]" + arguments});
  expect_weather(kKimiK2,
                 {"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" +
                  arguments + "<|tool_call_end|>"});
  expect_weather(kDeepseekV3, {"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + arguments +
                               "<｜tool▁call▁end｜>"});
  expect_weather(kPythonic, {"[get_weather(City='Paris', Days=3)]"});
  expect_weather(kQwen3Coder, {"<tool_call>\n<function=get_weather>\n" + arguments +
                               "\n</function>\n</tool_call>"});
  // One that the object has already, or that means no parameter, stays.
  expect_read(
      {.calls = kQwen},
      in_tags(R"({"name": "get_weather", "arguments": {"city": "a", "City": "b", "x": 1}})"),
      {"", "", {{"get_weather", {{"city", "a"}, {"City", "b"}, {"x", 1}}}}});
}

// The call of get_weather as these two formats spell it.
const std::string kCoderCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
const std::string kGlmCall =
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";

const std::string kMinimaxCall =
    "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
    "name=\"city\">Paris</parameter>\n"
    "<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>";
const std::string kSeedCall =
    "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
    "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>";

TEST(LooseSpellingsTest, WrappersAndCodeFences) {
  const auto in_fence = [](const std::string& info, const std::string& inside) {
    return "```" + info + "\n" + inside + "\n```";
  };
  expect_weather(
      kQwen, {"<tools>\n" + kObject + "\n</tools>", "<tools>\n" + in_tags(kObject) + "\n</tools>",
              "<function_call>\n" + kObject + "\n</function_call>", in_fence("json", kObject),
              in_fence("tool_call", kObject), in_fence("", kObject), in_fence("", in_tags(kObject)),
              in_fence("xml", in_tags(kObject)), in_tags(in_fence("", kObject)),
              in_tags(in_fence("tool_call", kObject))});
  expect_weather(kQwen3Coder, {in_fence("xml", kCoderCall), in_fence("", kCoderCall),
                               in_fence("tool_call", kObject), in_tags(in_fence("json", kObject)),
                               in_tags(kObject), "<tools>\n" + kObject + "\n</tools>",
                               "<function_call>" + kObject + "</function_call>"});
  expect_weather(kGlm,
                 {in_fence("", kGlmCall), in_fence("xml", kGlmCall), in_fence("tool_call", kObject),
                  in_tags(kObject), "<function_call>" + kObject + "</function_call>"});
  expect_weather(kLlama3, {in_fence("json", kObject), in_fence("tool_call", kObject),
                           "<|python_tag|>" + in_fence("json", kObject)});
  expect_weather(kMistral, {in_fence("json", "[" + kObject + "]"), in_fence("json", kObject),
                            in_fence("", "[TOOL_CALLS][" + kObject + "]")});
  expect_weather(kPythonic, {in_fence("python", "[" + kPythonCall + "]"),
                             in_fence("tool_code", kPythonCall), in_fence("", kPythonCall)});
  expect_weather(kQwen, {"Sure.\n\n" + in_fence("json", kObject) + "\n"}, "Sure.");
  expect_read({.calls = kQwen}, in_fence("json", kObject) + "\nDone.",
              {"\nDone.", "", {{"get_weather", LooseJson::parse(kArguments)}}});
  // Code that is no call stays.
  for (const std::string& text :
       {in_fence("json", R"({"name": "Ann", "age": 3})"), in_fence("python", "print(1)"),
        in_fence("tool_call", "x = 1"), std::string("```\n"), std::string("a ```json\n")}) {
    for (const auto format : {kQwen, kQwen3Coder, kGlm, kLlama3, kMistral, kPythonic, kGranite,
                              kNemotronV2, kCohere, kLfm2, kGemma4, kMinimaxM2, kSeedOss}) {
      expect_read({.calls = format}, text, {text, "", {}});
    }
  }
}

// Tags that are none of the format's, around its calls.
TEST(LooseSpellingsTest, TagsAroundCalls) {
  const std::string dsml =
      "<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">"
      "Paris</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3"
      "</｜DSML｜parameter>\n</｜DSML｜invoke>";
  const std::vector<std::pair<ToolCallFormat, std::string>> calls = {
      {kQwen, in_tags(kObject)},
      {kQwen, kObject},
      {kQwen3Coder, kCoderCall},
      {kQwen3Coder, kCoderCall.substr(kCoderCall.find("<function"))},
      {kQwen3Coder, kObject},
      {kGlm, kGlmCall},
      {kGlm, kObject},
      {kDeepseekV32, dsml},
      {kLlama3, kObject},
      {kMistral, "[TOOL_CALLS][" + kObject + "]"},
      {kPythonic, "[" + kPythonCall + "]"},
      {kKimiK2, "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" +
                    kArguments + "<|tool_call_end|>"},
      {kDeepseekV3,
       "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + kArguments + "<｜tool▁call▁end｜>"},
      {kGranite, "<|tool_call|>[" + kObject + "]"},
      {kNemotronV2, "<TOOLCALL>[" + kObject + "]</TOOLCALL>"},
      {kCohere, "<|START_ACTION|>[{\"tool_name\": \"get_weather\", \"parameters\": " + kArguments +
                    "}]<|END_ACTION|>"},
      {kLfm2, "<|tool_call_start|>[" + kPythonCall + "]<|tool_call_end|>"},
      {kGemma4, "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|>"},
      {kMinimaxM2, kMinimaxCall},
      {kSeedOss, kSeedCall},
  };
  const LooseJson arguments = LooseJson::parse(kArguments);
  for (const auto& [format, call] : calls) {
    for (const std::string_view word :
         {"tools", "tool_calls", "function_calls", "function_call", "tool_use"}) {
      const std::string open = "<" + std::string(word) + ">";
      const std::string close = "</" + std::string(word) + ">";
      const bool is_marked = call != kObject || format == kQwen || format == kLlama3;
      if (is_marked) expect_weather(format, {call + close, call + "\n" + close});
      expect_weather(format, {open + "\n" + call + "\n" + close, open + call + close, open + call,
                              "```xml\n" + open + "\n" + call + "\n" + close + "\n```",
                              open + "\n```\n" + call + "\n```\n" + close});
      expect_weather(format, {"Sure.\n" + open + "\n" + call + "\n" + close + "\n"}, "Sure.");
      expect_read({.calls = format}, "Sure.\n\n" + open + "\n" + call + "\n" + close + "\n\nDone.",
                  {"Sure.\n\nDone.", "", {{"get_weather", arguments}}});
      if (format == kDeepseekV32 && word == "function_calls") continue;  // the format's own
      // Without a call it is text.
      for (const std::string& text :
           {"The " + open + " tag holds tools" + close, open + "\nnone\n" + close,
            open + " and " + close + " are tags", "```\n" + open + "\nx\n" + close + "\n```"}) {
        expect_read({.calls = format}, text, {text, "", {}});
      }
    }
  }
  // Cut in the middle a tag is no text.
  for (const std::string_view text : {"Sure.\n<tools>\n{\"name\": \"get_w", "Sure.\n<function_ca",
                                      "Sure.\n<tool_calls>\n<tool_call>\n{"}) {
    expect_read({.calls = kQwen, .end = TextEnd::kCut}, text, {"Sure.", "", {}});
  }
}

// f(x=1) behind the format's mark.
// A model that repeats the list of its tools calls none of them.
TEST(LooseSpellingsTest, DefinitionsOfToolsAreNoCalls) {
  const std::string schema =
      R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})";
  const std::string sorted =
      R"({"properties": {"city": {"type": "string"}}, "required": ["city"], "type": "object"})";
  const auto in_function = [](const std::string& function) {
    return R"({"type": "function", "function": )" + function + "}";
  };
  std::vector<std::string> definitions = {
      R"({"name": "get_weather", "description": "Tells it.", "parameters": )" + schema + "}",
      R"({"description": "Tells it.", "name": "get_weather", "parameters": )" + sorted + "}",
      R"({"name": "get_weather", "parameters": )" + schema + R"(, "description": "Tells it."})",
      R"({"name": "get_weather", "parameters": )" + sorted + "}",
      R"({"parameters": )" + schema + R"(, "name": "get_weather"})",
      R"({"name": "get_weather", "parameters": {"title": "Weather", "type": "object",)"
      R"( "properties": {}}})",
      R"({"name": "now", "parameters": {"type": "object"}})",
      R"({"name": "now", "description": "Tells the time."})",
      R"({"name": "write_file", "input_schema": )" + schema + "}",
      R"({"name": "unheard_of", "description": "Does it.", "parameters": )" + schema + "}"};
  for (size_t i = 0, size = definitions.size(); i < size; ++i) {
    definitions.push_back(in_function(definitions[i]));
  }
  definitions.push_back(definitions[0] + "\n" + definitions[10]);
  definitions.push_back("[" + definitions[0] + ", " + definitions[11] + "]");
  definitions.push_back("[\n" + definitions[3] + ",\n" + definitions[12] + "\n]");
  const std::string call = "\n<tool_call>\n" + kObject + "\n</tool_call>";
  for (const auto format :
       {kQwen, kQwen3Coder, kGlm, kLlama3, kMistral, kPythonic, kDeepseekV3, kDeepseekV32, kKimiK2,
        kGranite, kNemotronV2, kCohere, kLfm2, kGemma4, kMinimaxM2, kSeedOss}) {
    for (const std::string& defined : definitions) {
      for (const std::string& text :
           {"<tools>\n" + defined + "\n</tools>", "<tools>" + defined + "</tools>", defined,
            "Mine:\n<tools>\n" + defined + "\n</tools>\nAsk.", "```json\n" + defined + "\n```",
            "<tools>\n```json\n" + defined + "\n```\n</tools>"}) {
        expect_read({.calls = format}, text, {text, "", {}});
      }
    }
    const std::string listed = "<tools>\n" + definitions[10] + "\n</tools>";
    expect_weather(format,
                   {listed + "\n<tools>\n" + kObject + "\n</tools>",
                    listed + "\n```tool_call\n" + kObject + "\n```"},
                   listed);
  }
  for (const std::string& defined : definitions) {
    expect_weather(kQwen, {"<tools>\n" + defined + "\n</tools>" + call},
                   "<tools>\n" + defined + "\n</tools>");
  }
}

// The words of a definition that are a tool's own parameters.
TEST(LooseSpellingsTest, ArgumentsMayBeNamedAsInDefinitions) {
  const auto tools = std::make_shared<const LooseJson>(LooseJson::parse(R"([
    {"type": "function", "function": {"name": "define", "parameters": {"type": "object",
      "properties": {"type": {"type": "string"}, "properties": {"type": "object"},
                     "description": {"type": "string"}, "title": {"type": "string"}}}}}])"));
  for (const auto& [text, arguments] : std::vector<std::pair<std::string, std::string>>{
           {R"({"name": "define", "parameters": {"type": "object", "properties": {}}})",
            R"({"type": "object", "properties": {}})"},
           {R"({"name": "define", "parameters": {"description": "d", "type": "t"}})",
            R"({"description": "d", "type": "t"})"},
           {R"({"name": "define", "parameters": {"title": "t"}})", R"({"title": "t"})"},
           {R"({"name": "define", "description": "d"})", R"({"description": "d"})"},
           {R"({"description": "d", "name": "define"})", R"({"description": "d"})"},
           {R"({"name": "define", "description": "d", "parameters": {"type": "object", "x": 1}})",
            ""}}) {
    for (const size_t piece : {size_t{1}, text.size()}) {
      const std::string answered = "<tool_call>\n" + text + "\n</tool_call>";
      const AssembledAnswer answer =
          read_loosely({.calls = kQwen}, answered, piece, /*keeps_call_text=*/false, tools);
      ASSERT_EQ(answer.calls.size(), arguments.empty() ? 0U : 1U) << text;
      if (arguments.empty()) continue;
      EXPECT_EQ(LooseJson::parse(answer.calls[0].arguments), LooseJson::parse(arguments)) << text;
    }
  }
}

TEST(LooseSpellingsTest, CallsWrittenAsPython) {
  for (const std::string& call :
       {kPythonCall, std::string("get_weather('Paris', 3)"), "get_weather(" + kArguments + ")",
        std::string("get_weather({'city': 'Paris', 'days': 3})"),
        std::string("functions.get_weather(City='Paris', days=3)")}) {
    expect_weather(kQwen, {in_tags(call), "<tool_call>" + call + "</tool_call>"});
    expect_weather(kQwen3Coder, {in_tags(call), "<tool_call>" + call + "</tool_call>"});
    expect_weather(kGlm, {in_tags(call), "<tool_call>" + call + "</tool_call>"});
    expect_weather(kMistral, {"[TOOL_CALLS]" + call, "[TOOL_CALLS] [" + call + "]"});
    expect_weather(kLlama3, {"<|python_tag|>" + call});
    expect_weather(kDeepseekV3, {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + call +
                                 "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"});
    expect_weather(kKimiK2, {"<|tool_call_begin|>" + call + "<|tool_call_end|>"});
    expect_weather(kPythonic, {"[" + call + "]"});
    expect_weather(kLfm2, {"<|tool_call_start|>[" + call + "]<|tool_call_end|>"});
    expect_weather(kGranite, {"<|tool_call|>[" + call + "]"});
    expect_weather(kNemotronV2, {"<TOOLCALL>" + call + "</TOOLCALL>"});
    expect_weather(kCohere, {"<|START_ACTION|>[" + call + "]<|END_ACTION|>"});
    expect_weather(kGemma4, {"<|tool_call>" + call + "<tool_call|>"});
    expect_weather(kSeedOss, {"<seed:tool_call>" + call + "</seed:tool_call>"});
    expect_weather(kMinimaxM2, {"<minimax:tool_call>" + call + "</minimax:tool_call>"});
  }
  expect_weather(kLlama3, {"<|python_tag|>get_weather.call(" + kArguments + ")",
                           "<|python_tag|>get_weather.call(city=\"Paris\", days=3)"});
  for (const std::string_view text :
       {"<tool_call>print(1) </tool_call> x", "a <tool_call>other(x=1) </tool_call> b"}) {
    expect_read({.calls = kQwen}, text, {std::string(text), "", {}});
  }
}

TEST(LooseSpellingsTest, PythonsStringsAndSeparators) {
  const LooseJson arguments = LooseJson::parse(kArguments);
  expect_weather(kPythonic, {R"([get_weather(city="""Paris""", days=3)])",
                             R"([get_weather(city='''Paris''', days=3)])",
                             R"([get_weather("""Paris""", 3)])"});
  for (const auto& [written, value] :
       std::vector<std::pair<std::string, std::string>>{{R"("""it's "x", ok)
y""")",
                                                         "it's \"x\", ok)\ny"},
                                                        {R"('''a'b''')", "a'b"},
                                                        {R"("")", ""},
                                                        {R"("""""")", ""},
                                                        {R"("""a\"""b""")", R"(a"""b)"}}) {
    expect_read({.calls = kPythonic}, "[write_file(content=" + written + ", path='p')]",
                {"", "", {{"write_file", {{"content", value}, {"path", "p"}}}}});
  }
  for (const std::string& text : {kPythonCall + "; now()", "[" + kPythonCall + "; now()]",
                                  kPythonCall + ";\nnow()", kPythonCall + "\nnow()"}) {
    expect_read({.calls = kPythonic}, text,
                {"", "", {{"get_weather", arguments}, {"now", LooseJson::object()}}});
  }
}

TEST(LooseSpellingsTest, LlamaFunctionTags) {
  const std::string tag = "<function=get_weather>" + kArguments;
  expect_weather(kLlama3, {tag + "</function>", tag, "<|python_tag|>" + tag + "</function>",
                           "<function=\"get_weather\">\n" + kArguments + "\n</function>",
                           "<function=functions.get_weather>" + kArguments + "</function>",
                           "<function name=\"get_weather\">" + kArguments + "</function>"});
  expect_weather(kLlama3, {"Sure. " + tag + "</function>"}, "Sure.");
  expect_read({.calls = kLlama3}, "<function=now></function>",
              {"", "", {{"now", LooseJson::object()}}});
  for (const std::string_view text :
       {"The <function=now> tag", "<function=other>{}</function>", "a <function> b"}) {
    expect_read({.calls = kLlama3}, text, {std::string(text), "", {}});
  }
}

TEST(LooseSpellingsTest, OtherTagsOfKeysAndValues) {
  const auto pair = [](const std::string& key, const std::string& value) {
    return "<" + key + ">city</" + key + ">\n<" + value + ">Paris</" + value + ">\n<" + key +
           ">days</" + key + ">\n<" + value + ">3</" + value + ">";
  };
  expect_weather(kGlm,
                 {in_tags("get_weather\n" + pair("arg_name", "arg_value")),
                  "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_key>"
                  "\n<arg_key>days</arg_key>\n<arg_value>3</arg_key>\n</tool_call>",
                  "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_key>"
                  "\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
                  "<tool_call>get_weather()\n" + pair("arg_key", "arg_value") + "</tool_call>"});
  const auto invoke = [](const std::string& call, const std::string& city,
                         const std::string& days) {
    return "<｜DSML｜function_calls>\n<｜DSML｜invoke" + call + ">\n<｜DSML｜parameter" + city +
           ">Paris</｜DSML｜parameter>\n<｜DSML｜parameter" + days +
           ">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  };
  expect_weather(
      kDeepseekV32,
      {invoke(" name=\"get_weather\"", " string=\"true\" name=\"city\"",
              " name=\"days\" type=\"integer\""),
       invoke(" name='get_weather'", " name='city' string=true", " name='days' string='False'"),
       invoke("=\"get_weather\"", "=city", " name = \"days\" string = \"false\" "),
       invoke(" tool=\"get_weather\"", " key=\"city\" string=\"yes\"", " name=\"days\" string"),
       invoke(" name=\"get_weather\" id=\"1\"", " name=\"city\" string=\"false\"",
              " name=\"days\" string=\"false\" x")});
}

TEST(LooseSpellingsTest, NamesWithWordsAroundThem) {
  for (const std::string_view name :
       {"call_get_weather_0", "functions_get_weather:0", "functions.get_weather_0",
        "call_get_weather:1", "get_weather.call", "functions.get_weather.call"}) {
    expect_weather(kKimiK2, {"<|tool_call_begin|>" + std::string(name) +
                             "<|tool_call_argument_begin|>" + kArguments + "<|tool_call_end|>"});
    expect_weather(kQwen, {in_tags("{\"name\": \"" + std::string(name) +
                                   "\", \"arguments\": " + kArguments + "}")});
  }
}

}  // namespace
}  // namespace heddle::parsers
