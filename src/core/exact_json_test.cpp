// SPDX-License-Identifier: Apache-2.0
#include "core/exact_json.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/json_syntax.h"

namespace heddle {
namespace {

TEST(ExactJsonTest, NumbersAreWrittenAsTheyWereRead) {
  const std::string digits(400, '7');
  for (const auto& [text, written] : std::vector<std::pair<std::string, std::string>>{
           {"123456789012345678901234567890", "123456789012345678901234567890"},
           {"-9223372036854775809", "-9223372036854775809"},
           {"18446744073709551616", "18446744073709551616"},
           {"18446744073709551615", "18446744073709551615"},
           {digits, digits},
           {"-" + digits, "-" + digits},
           {"1e400", "1e400"},
           {"-1.50E+999", "-1.50E+999"},
           {"1e-400", "0.0"},
           {"1e-99999999999999999999", "0.0"},
           {"1e99999999999999999999", "1e99999999999999999999"},
           {"0." + std::string(400, '0') + "1", "0.0"},
           {"0." + std::string(400, '0') + "1e900", "0." + std::string(400, '0') + "1e900"},
           {digits + "e-10", digits + "e-10"},
           {digits + ".5E-00010", digits + ".5E-00010"},
           {digits + "e-800", "0.0"},
           {"0e999", "0.0"},
           {"1.0", "1.0"},
           {"1", "1"},
           {"-0", "0"},
           {"-0.0", "-0.0"},
           {"0.1000", "0.1"},
           {"1e2", "100.0"}}) {
    for (const auto& [before, after] : std::vector<std::pair<std::string, std::string>>{
             {"", ""},
             {"[", "]"},
             {R"({"a":")" + digits + R"(\"7","1e400":)", R"(,"b":[true]})"}}) {
      const auto json = parse_exact_json(before + text + after);
      ASSERT_TRUE(json.ok()) << text << json.status().message();
      EXPECT_EQ(dump_exact_json(json.value()), before + written + after);
    }
  }
}

TEST(ExactJsonTest, ATextThatIsNoJsonStaysNone) {
  for (const std::string_view text : {"1e400x", "[01e400]", "1e400.5", "-", "[1e400", "{1e400: 1}",
                                      "\"1e400", "", "+1e400", ".5e400", "[1e400 1]"}) {
    EXPECT_FALSE(parse_exact_json(text).ok()) << text;
  }
}

TEST(ExactJsonTest, NestingIsBounded) {
  const auto nested = [](size_t num_levels, std::string_view inside) {
    std::string text;
    for (size_t i = 0; i < num_levels; ++i) text += i % 2 == 0 ? "{\"a\":" : "[";
    text += inside;
    for (size_t i = num_levels; i-- > 0;) text += i % 2 == 0 ? '}' : ']';
    return text;
  };
  for (const std::string_view inside : {"1", "1e400", "18446744073709551616", "\"x\"", "{}"}) {
    const size_t most = kMaxJsonDepth - (inside == "{}" ? 1 : 0);
    const std::string deep = nested(most, inside);
    const auto json = parse_exact_json(deep);
    ASSERT_TRUE(json.ok()) << inside;
    EXPECT_EQ(dump_exact_json(json.value()), deep);
    for (const size_t more : {size_t{1}, size_t{1'000'000}}) {
      const auto deeper = parse_exact_json(nested(most + more, inside));
      ASSERT_FALSE(deeper.ok());
      EXPECT_NE(deeper.status().message().find("1000 levels"), std::string::npos);
    }
  }
  EXPECT_TRUE(object_of_json(nested(1'000'000, "1")).empty());
}

TEST(ExactJsonTest, AWideNumberIsNoKey) {
  for (const std::string_view text :
       {R"({1e400:1})", R"({"a":1e400,1e400:1})", R"({"a":1e400,1e400:1,"b":1e400})",
        R"([1e400,{"a":{-1e999:1}}])", R"({"a":1e400,"b":2,1e400:1,"c":3})"}) {
    const auto json = parse_exact_json(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_NE(json.status().message().find("key"), std::string::npos) << json.status().message();
  }
}

TEST(ExactJsonTest, AnErrorBehindAWideNumberIsTold) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"[1e400", "unexpected end of input"},
           {R"({"a": 1e400 "b": 2})", "unexpected string literal"},
           {R"({"a": 1e400, "b": nul})", "invalid literal"},
           {R"({"a": 1e400, "b": 01})", "unexpected number literal"}}) {
    const auto json = parse_exact_json(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_NE(json.status().message().find(reason), std::string::npos) << json.status().message();
  }
  constexpr std::string_view kFields[] = {"a"};
  const auto json = parse_exact_json(R"({"a": 1e400, "b": 1e401})", kFields);
  ASSERT_FALSE(json.ok());
  EXPECT_NE(json.status().message().find("overflow parsing '1e401'"), std::string::npos)
      << json.status().message();
}

TEST(ExactJsonTest, WideNumbersAreKeptInTheFieldsAskedFor) {
  constexpr std::string_view kFields[] = {"a"};
  const auto read = [&kFields](std::string_view text) { return parse_exact_json(text, kFields); };
  const auto json = read(R"({"a": [{"b": 98765432109876543210}], "b": 98765432109876543210})");
  ASSERT_TRUE(json.ok());
  EXPECT_TRUE(json.value()["b"].is_number_float());
  EXPECT_EQ(wide_number_spelling(json.value()["a"][0]["b"]), "98765432109876543210");
  EXPECT_TRUE(read(R"({"a": 1e400})").ok());
  EXPECT_FALSE(read(R"({"b": {"a": 1e400}})").ok());
  EXPECT_FALSE(read(R"({"a": 1e400, "b": 1e400})").ok());
}

TEST(ExactJsonTest, TheLastOfTwoEqualKeysCounts) {
  EXPECT_EQ(dump_exact_json(parse_exact_json(R"({"a": 1, "b": 2, "a": 1e400})").value()),
            R"({"a":1e400,"b":2})");
}

}  // namespace
}  // namespace heddle
