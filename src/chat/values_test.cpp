// SPDX-License-Identifier: Apache-2.0
// Values and the functions on them: numbers, texts, JSON, dates.
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat/golden_fixture.h"
#include "chat/json.h"
#include "chat/numbers.h"
#include "chat/python_text.h"
#include "chat/string_format.h"
#include "chat/text_operations.h"
#include "chat/value.h"
#include "core/exact_json.h"

namespace heddle::chat {
namespace {

std::string evaluate(const std::string& expression, const Json& context = Json::object()) {
  return shown(render_golden("{{ " + expression + " }}", context));
}

TEST(NumbersTest, FloatsPrintAsPythonPrintsThem) {
  const std::vector<std::pair<double, std::string>> cases = {
      {1.0, "1.0"},
      {0.1, "0.1"},
      {-0.0, "-0.0"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {1.5e300, "1.5e+300"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {1.0 / 3, "0.3333333333333333"},
      {5e-324, "5e-324"},
      {123456.789, "123456.789"},
      {std::numeric_limits<double>::infinity(), "inf"},
      {-std::numeric_limits<double>::infinity(), "-inf"},
      {std::nan(""), "nan"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(float_text(value), text);
}

TEST(NumbersTest, TextsAreReadAsPythonReadsThem) {
  EXPECT_EQ(parse_integer(" -1_000 ", 10), -1000);
  EXPECT_EQ(parse_integer("0x1F", 0), 31);
  EXPECT_EQ(parse_integer("ff", 16), 255);
  EXPECT_EQ(parse_integer("-9223372036854775808", 10), std::numeric_limits<int64_t>::min());
  for (const char* text :
       {"", "-", "1__0", "_1", "1_", "9223372036854775808", "1.5", "--1", "+-1", "x"}) {
    EXPECT_EQ(parse_integer(text, 10), std::nullopt) << text;
  }
  EXPECT_EQ(parse_float(" 1_0.5e1 "), 105.0);
  EXPECT_EQ(parse_float("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_float("1e999"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_float("1e-999"), 0.0);
  for (const char* text : {"", ".", "e5", "0x10", "1.5.5", "-"})
    EXPECT_EQ(parse_float(text), std::nullopt) << text;
}

TEST(NumbersTest, LargeIntegersCompareExactlyWithFloats) {
  EXPECT_EQ(compare_numbers(Value::integer(9007199254740993), Value::floating(9007199254740992.0)),
            1);
  EXPECT_EQ(
      compare_numbers(Value::floating(9.3e18), Value::integer(std::numeric_limits<int64_t>::max())),
      1);
  EXPECT_EQ(compare_numbers(Value::integer(1), Value::boolean(true)), 0);
  EXPECT_EQ(compare_numbers(Value::floating(std::nan("")), Value::integer(1)), 2);
}

TEST(ValueTest, DictsKeepOrderAndTakeTheLastOfRepeatedKeys) {
  EXPECT_EQ(evaluate("{'b': 1, 'a': 2, 1: 'x', 'b': 3, 1.0: 'y', true: 'z'}"),
            "{'b': 3, 'a': 2, 1: 'z'}");
  EXPECT_EQ(
      evaluate("{[1]: 2}"),
      "error: chat_template:1:4: a dict key must be a string, number, boolean or none, not 'list'");
  EXPECT_EQ(evaluate("d['k999'] ~ d.k0 ~ d.nope",
                     [] {
                       Json d = Json::object();
                       for (int i = 0; i < 1000; ++i) d["k" + std::to_string(i)] = i;
                       return Json{{"d", d}};
                     }()),
            "9990");
}

TEST(ValueTest, JsonNumbersKeepTheirKind) {
  EXPECT_EQ(evaluate("[a, b, c, d]",
                     Json::parse(R"({"a": 1, "b": 1.0, "c": -9223372036854775808, "d": 1e3})")),
            "[1, 1.0, -9223372036854775808, 1000.0]");
  EXPECT_EQ(evaluate("a", Json::parse(R"({"a": 18446744073709551615})")), "18446744073709551615");
}

TEST(NumbersTest, IntegersOfAnySizeKeepTheirDigits) {
  const Json context =
      parse_exact_json(R"({"a": 123456789012345678901234567890, "b": -9223372036854775809,)"
                       R"( "c": 1e400, "d": [18446744073709551616, 1.0, -0, 0.1000],)"
                       R"( "e": 123456789012345678901234567891, "f": 18446744073709551616.0})")
          .value();
  const std::string hundreds(400, '7');
  for (const auto& [expression, result] : std::vector<std::pair<std::string, std::string>>{
           {"a", "123456789012345678901234567890"},
           {"b|tojson", "-9223372036854775809"},
           {"c", "inf"},
           {"-c|tojson", "-Infinity"},
           {"d|tojson", "[18446744073709551616, 1.0, 0, 0.1]"},
           {"d", "[18446744073709551616, 1.0, 0, 0.1]"},
           {"{a: 1}|tojson", R"({"123456789012345678901234567890": 1})"},
           {"-a", "-123456789012345678901234567890"},
           {"-b", "9223372036854775809"},
           {"b|abs", "9223372036854775809"},
           {"a|int", "123456789012345678901234567890"},
           {"a|round", "123456789012345678901234567890"},
           {"a ~ 'x'", "123456789012345678901234567890x"},
           {"'%d' % a", "123456789012345678901234567890"},
           {"'%5s|%d' % (1, b)", "    1|-9223372036854775809"},
           {"a is integer and a is number and a is not float", "True"},
           {"a < e, e > a, a == a, a == e, a != e", "(True, True, True, False, True)"},
           {"b < -9223372036854775807, b < 0, a > 0.5, a < c, b > -c",
            "(True, True, True, True, True)"},
           {"d[0] == f, d[0] < f, d[0] in [f]", "(True, False, True)"},
           {"[e, a, 1, b]|sort|first", "-9223372036854775809"},
           {"a + 1", "1.2345678901234568e+29"},
           {"('{\"x\": ' ~ '" + hundreds + "}')|from_json|tojson", "{\"x\": " + hundreds + "}"}}) {
    EXPECT_EQ(evaluate(expression, context), result) << expression;
  }
}

TEST(ValueTest, StringsCountCodePoints) {
  const Json context = {{"u", "aé日🤗"}};
  EXPECT_EQ(evaluate("[u|length, u[1], u[-1], u[1:3], u[::-1], u[9], u.find('日')]", context),
            "[4, 'é', '🤗', 'é日', '🤗日éa', Undefined, 2]");
  EXPECT_FALSE(value_from_json({{"x", "\xFF"}}).ok());
}

TEST(ValueTest, QuotesAndEscapesAreChosenAsInPython) {
  EXPECT_EQ(repr_of("a'b"), "\"a'b\"");
  EXPECT_EQ(repr_of("a'b\""), "'a\\'b\"'");
  EXPECT_EQ(repr_of("\n\t\\\x01\x7f é\u200b\U0001F917"),
            "'\\n\\t\\\\\\x01\\x7f é\\u200b\U0001F917'");
}

TEST(TextTest, CaseMappingsReachBeyondAscii) {
  EXPECT_EQ(to_upper("straße ﬁn é"), "STRASSE FIN É");
  EXPECT_EQ(to_lower("ÀÉ"), "àé");
  EXPECT_EQ(capitalized("éCOLE"), "École");
  EXPECT_EQ(title_case("they're bill's"), "They'Re Bill'S");
}

TEST(ToJsonTest, WritesAsJsonDumps) {
  const Json context = {
      {"x",
       Json::parse(R"({"b": [1, 2.5, null, true], "a": "é\n\"\\\u0001/<>&'", "e": {}, "l": []})")}};
  EXPECT_EQ(evaluate("x|tojson", context),
            R"({"b": [1, 2.5, null, true], "a": "é\n\"\\\u0001/<>&'", "e": {}, "l": []})");
  EXPECT_EQ(evaluate("x|tojson(indent=2)", context),
            "{\n  \"b\": [\n    1,\n    2.5,\n    null,\n    true\n  ],\n  \"a\": "
            "\"é\\n\\\"\\\\\\u0001/<>&'\",\n"
            "  \"e\": {},\n  \"l\": []\n}");
  EXPECT_EQ(evaluate("'é🤗'|tojson(ensure_ascii=true)"), R"("\u00e9\ud83e\udd17")");
  EXPECT_EQ(evaluate("{'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':'))"),
            R"({"a":2,"b":1})");
  EXPECT_EQ(evaluate("{1: 2, none: (3,), 1.5: 0}|tojson"), R"({"1": 2, "null": [3], "1.5": 0})");
  EXPECT_EQ(
      evaluate("[x]|tojson"),
      "error: chat_template:1:8: tojson: an undefined value has no JSON form ('x' is undefined)");
}

TEST(StrftimeTest, WritesEnglishDates) {
  const auto text = [](std::string_view format) {
    return shown(format_time(format, golden_time()));
  };
  EXPECT_EQ(text("%A, %d %B %Y"), "Thursday, 10 July 2025");
  EXPECT_EQ(text("%a %b %e %-m/%-d/%y %H:%M:%S %I %p %j %%"),
            "Thu Jul 10 7/10/25 12:34:56 12 PM 191 %");
  EXPECT_EQ(text("%F %T %D %R %c %u%w"),
            "2025-07-10 12:34:56 07/10/25 12:34 Thu Jul 10 12:34:56 2025 44");
  EXPECT_EQ(text("%C %h %k %l%n%P%t%r %x %X %-H %-I [%f%Z%z] %-y %S"),
            "20 Jul 12 12\npm\t12:34:56 PM 07/10/25 12:34:56 12 12 [000000] 25 56");
  EXPECT_EQ(text("%Q"), "error: strftime: the conversion '%Q' is not supported");
  EXPECT_EQ(text("%"), "error: strftime: the conversion '%' is not supported");
  std::tm wrong{};
  wrong.tm_mon = 12;
  EXPECT_FALSE(format_time("%B", wrong).ok());
}

TEST(GeneratorTest, FiltersThatAreLazyInJinjaAreTrueAndUsedUpOnce) {
  EXPECT_EQ(evaluate("'yes' if []|select else 'no'"), "yes");
  EXPECT_EQ(
      shown(render_golden("{% set g = [1, 2]|select %}{{ g|list }}{{ g|list }}", Json::object())),
      "[1, 2][]");
}

}  // namespace
}  // namespace heddle::chat
