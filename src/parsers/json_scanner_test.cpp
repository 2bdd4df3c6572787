// SPDX-License-Identifier: Apache-2.0
#include "parsers/json_scanner.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/test_data.h"

namespace heddle::parsers {
namespace {

using State = JsonScanner::State;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

State scan(std::string_view text, size_t& used, std::string* copy = nullptr) {
  JsonScanner scanner;
  return scanner.scan(text, used, copy, TextEnd::kStopped);
}

TEST(JsonScannerTest, AnObjectEndsAtItsBrace) {
  size_t used = 0;
  std::string copy;
  EXPECT_EQ(scan(R"({"a}": "}\"", "b": [{}, [], -0.5e+3, true]} rest)", used, &copy), State::kDone);
  EXPECT_EQ(copy, R"({"a}": "}\"", "b": [{}, [], -0.5e+3, true]})");
  EXPECT_EQ(used, copy.size());
  EXPECT_EQ(scan("{\"a\": \"x\ty\n\"}", used, &(copy = "")), State::kDone);
  EXPECT_EQ(copy, "{\"a\": \"x\\ty\\n\"}");
}

TEST(JsonScannerTest, TheRestOfAnObjectEndsAtItsBrace) {
  JsonScanner rest = JsonScanner::after_value();
  size_t used = 0;
  EXPECT_EQ(rest.scan(" , \"x\": 1 }}", used, nullptr), State::kDone);
  EXPECT_EQ(used, 11u);
}

TEST(JsonScannerTest, FaultsWithOneReadingAreMended) {
  const std::pair<const char*, const char*> kTexts[] = {
      {R"({"a": 1,})", R"({"a": 1})"},
      {R"({"a": 1,, "b": [1, 2,],})", R"({"a": 1, "b": [1, 2]})"},
      {R"({"a": 1 "b": [1 2]})", R"({"a": 1 ,"b": [1 ,2]})"},
      {R"({'a': 'it\'s "x"', "b": True, "c": None})",
       R"({"a": "it's \"x\"", "b": true, "c": null})"},
      {R"({"a": "\d\_"})", R"({"a": "\\d\\_"})"},
      {R"({"a": [1, {"b": 2})", R"({"a": [1, {"b": 2}]})"},
      {R"({"a": [1, 2})", R"({"a": [1, 2]})"},
      {R"({"a": 1]})", R"({"a": 1})"},
      {R"({"a" 1})", R"({"a" :1})"},
      {R"({{"a": {{"b": 1}}, "c": [{{"d": 2}}]}})", R"({"a": {"b": 1}, "c": [{"d": 2}]})"},
      {R"({{"a": {"b": 1}, "c": 2})", R"({"a": {"b": 1}, "c": 2})"}};
  for (const auto& [text, json] : kTexts) {
    size_t used = 0;
    std::string copy;
    JsonScanner scanner;
    const bool done = scanner.scan(text, used, &copy, TextEnd::kStopped) == State::kDone;
    if (!done) {
      EXPECT_TRUE(scanner.close_all(&copy)) << text;
    }
    EXPECT_EQ(nlohmann::json::parse(copy, nullptr, false),
              nlohmann::json::parse(json, nullptr, false))
        << copy;
  }
}

// A quote ends a string only where JSON may go on behind it, or the call ends.
TEST(JsonScannerTest, QuotesInStringsNeedNoBackslash) {
  const std::pair<const char*, const char*> kTexts[] = {
      {R"({"a": "the "big" one", "b": 1})", "the \"big\" one"},
      {R"({"a": ""big" one", "b": 1})", "\"big\" one"},
      {R"({"a": "one "big"", "b": 1})", "one \"big\""},
      {R"({"a": "one "big""})", "one \"big\""},
      {R"({"a": "x, "y", "z", and", "b": 1})", "x, \"y\", \"z\", and"},
      {R"_({"a": "f("x")", "b": 1})_", "f(\"x\")"},
      {R"({"a": "<b id="x">y</b>"})", "<b id=\"x\">y</b>"},
      {R"({"a": "<b>"x"</b>"})", "<b>\"x\"</b>"},
      {R"({"a": "{"x": "y"}"})", "{\"x\": \"y\"}"},
      {R"({"a": "{"x": ["y"]}", "b": 1})", "{\"x\": [\"y\"]}"},
      {R"({'a': 'it's', 'b': 1})", "it's"},
      {R"({"a": "x"
   , "a long name": 1, "b": 1})",
       "x"},
      {R"({"a": "x" "b": 1})", "x"},
      {R"({"a": "x"</tool_call>)", "x"}};
  for (const auto& [text, value] : kTexts) {
    for (const size_t piece : {size_t{1}, size_t{5}, std::string_view(text).size()}) {
      JsonScanner scanner;
      std::string copy;
      std::string unread;
      State state = State::kMore;
      for (std::string_view rest = text; state == State::kMore && !rest.empty();) {
        unread += rest.substr(0, piece);
        rest.remove_prefix(std::min(piece, rest.size()));
        size_t used = 0;
        state =
            scanner.scan(unread, used, &copy, rest.empty() ? TextEnd::kStopped : TextEnd::kNone);
        unread.erase(0, used);
      }
      if (state != State::kDone) {
        EXPECT_TRUE(scanner.close_all(&copy)) << text;
      }
      const auto json = nlohmann::json::parse(copy, nullptr, false);
      ASSERT_TRUE(json.is_object()) << copy;
      EXPECT_EQ(json["a"], value) << copy << " in " << piece;
    }
  }
  size_t used = 0;
  std::string copy;
  EXPECT_EQ(scan(R"({"a": ["x "y" z", "u", true, "v", 1]})", used, &copy), State::kDone);
  EXPECT_EQ(copy, R"({"a": ["x \"y\" z", "u", true, "v", 1]})");
}

TEST(JsonScannerTest, KeysOfTheObjectMayBeRenamed) {
  JsonScanner scanner([](std::string_view written) {
    return written == "A" ? std::string("a") : std::string(written);
  });
  size_t used = 0;
  std::string copy;
  EXPECT_EQ(scanner.scan(R"({"A": {"A": 1}, "b": 2, "A": 3})", used, &copy), State::kDone);
  EXPECT_EQ(copy, R"({"a": {"A": 1}, "b": 2, "A": 3})");
  const std::string long_key(2 * JsonScanner::kMaxKeyBytes, 'A');
  JsonScanner other([](std::string_view) { return std::string("a"); });
  copy.clear();
  EXPECT_EQ(other.scan("{\"" + long_key + "\": 1}", used, &copy), State::kDone);
  EXPECT_EQ(copy, "{\"" + long_key + "\": 1}");
}

TEST(JsonScannerTest, TheBeginningOfAnObjectIsCompleted) {
  EXPECT_EQ(completed_object(R"({"a": "Par)"), R"({"a": "Par"})");
  EXPECT_EQ(completed_object(R"({"a": 1, "b)"), R"({"a": 1})");
  EXPECT_EQ(completed_object(R"({"a": [1, {"b": 2, "c":)"), R"({"a": [1, {"b": 2}]})");
  EXPECT_EQ(completed_object(R"({"a": 1, )"), R"({"a": 1})");
  EXPECT_EQ(completed_object(R"({"a": tr)"), "{}");
  EXPECT_EQ(completed_object(""), "{}");
  EXPECT_EQ(completed_object("{}"), "{}");
}

TEST(JsonScannerTest, AZeroByteIsNoEnd) {
  EXPECT_TRUE(is_json(" [1, \"a\"] "));
  EXPECT_FALSE(is_json("[1] 2"));
  EXPECT_FALSE(is_json(std::string_view("[1]\0]", 5)));
}

TEST(JsonScannerTest, LevelsAreBounded) {
  const auto deep = [](size_t levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  size_t used = 0;
  EXPECT_EQ(scan(deep(JsonScanner::kMaxLevels), used), State::kDone);
  EXPECT_EQ(scan(deep(JsonScanner::kMaxLevels + 1), used), State::kError);
}

// Each text of the suite as a member of an object. UTF-8 is not validated here.
TEST(JsonScannerTest, JsonIsWhatTheTestSuiteSaysItIs) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/json_test_suite/test_parsing");
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string value((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    if (name.starts_with("i_")) continue;  // the suite leaves them open
    SCOPED_TRACE(name);
    const std::string text = "{\"a\": " + value + "\n}";
    size_t used = 0;
    std::string copy;
    const bool taken = scan(text, used, &copy) == State::kDone && used == text.size();
    if (name.starts_with("y_")) {
      EXPECT_TRUE(taken);
    } else if (taken) {  // once its control characters are escaped, or of broken characters
      const bool lone_surrogate = copy.find("\\uD8") != std::string::npos;
      EXPECT_TRUE(nlohmann::json::accept(copy) || !is_ascii(copy) || lone_surrogate) << copy;
    }
    ++checked;
  }
  EXPECT_GT(checked, 200);
}

TEST(JsonScannerTest, EscapedTextIsTheInsideOfAString) {
  std::string every;
  for (int byte = 0; byte < 0x80; ++byte) every += static_cast<char>(byte);
  every += "\u00e9 \U0001f600";
  std::string escaped;
  append_escaped(every, escaped);
  EXPECT_EQ(nlohmann::json::parse('"' + escaped + '"').get<std::string>(), every);
  EXPECT_EQ(escaped, nlohmann::json(every).dump().substr(1, escaped.size()));
}

}  // namespace
}  // namespace heddle::parsers
