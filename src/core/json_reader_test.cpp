// SPDX-License-Identifier: Apache-2.0
#include "core/json_reader.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(StrictJson, LeavesStandardJsonAsItIs) {
  for (const std::string_view text :
       {R"({})", R"([])", R"( [ 1 , -2.5e-3 , true , false , null , "a\n\u00e9\ud83d\ude00" ] )",
        R"({"a": {"b": [[], {}, [{}]]}, "a": 2})", "0", "-0", "18446744073709551615",
        "-9223372036854775808", "\"\x7f\xc3\xa9\""}) {
    const Result<std::string> strict = strict_json(text);
    ASSERT_TRUE(strict.ok()) << text << ": " << strict.status().message();
    EXPECT_EQ(*strict, text);
  }
}

TEST(StrictJson, WritesWhatOnlyPythonReadsAsStandardJson) {
  constexpr std::string_view kCases[][2] = {
      {"1000000000000000019884624838656", "1000000000000000019884624838656.0"},
      {"-18446744073709551616", "-18446744073709551616.0"},
      {"18446744073709551616", "18446744073709551616.0"},
      {R"({"a": [{"b": 99999999999999999999}]})", R"({"a": [{"b": 99999999999999999999.0}]})"},
      {"NaN", R"({"__float__": "NaN"})"},
      {"[Infinity, -Infinity]", R"([{"__float__": "Infinity"}, {"__float__": "-Infinity"}])"},
      {"[1e400, -1e400]", R"([{"__float__": "Infinity"}, {"__float__": "-Infinity"}])"},
      {"1e-400", "0.0"},
      {R"("\ud800")", R"("\ufffd")"},
      {R"({"\udfff": "a\ud800\u0041"})", R"({"\ufffd": "a\ufffd\u0041"})"},
      {R"("\ud800\ud83d\ude00")", R"("\ufffd\ud83d\ude00")"},
      {"\xEF\xBB\xBF{}", "{}"},
  };
  for (const auto& [text, wanted] : kCases) {
    const Result<std::string> strict = strict_json(text);
    ASSERT_TRUE(strict.ok()) << text << ": " << strict.status().message();
    EXPECT_EQ(*strict, wanted);
  }
  const Result<std::string> huge = strict_json(std::string(400, '9'));
  ASSERT_TRUE(huge.ok());
  EXPECT_EQ(*huge, R"({"__float__": "Infinity"})");
}

TEST(StrictJson, NamesLineColumnAndWhatIsExpected) {
  constexpr std::string_view kCases[][2] = {
      {"{\n  \"a\": 1,\n}", "line 2, column 9: a comma before '}'; remove it"},
      {"{\n  \"a\": 1\n  \"b\": 2\n}", "line 3, column 3: '\"' where ',' or '}' is expected"},
      {"{\"a\": 'b'}", "line 1, column 7: ''' where a value is expected; JSON has double quotes"},
      {"{a: 1}",
       "column 2: 'a' where a key in double quotes is expected; correct the line, or download"},
      {"[1, 2",
       "column 6: the file ends where ',' or ']' is expected: truncated, or not fully downloaded; "
       "download it again"},
      {"{\"a\": True}", "JSON writes true, false and null"},
      {"{} // done", "JSON has no comments"},
      {"[01]", "a number that begins with 0"},
      {"[1.]", "a digit after '.' is expected"},
      {"[-]", "a value is expected"},
      {"[\"a\nb\"]", "the control character U+000A in a string; write \\u000a"},
      {"[\"a\\x\"]", "an escape that JSON does not know"},
      {"[\"\\u12g4\"]", "\\u without four hexadecimal digits"},
      {"[\"abc", "a string that does not end"},
      {"[\"\xFF\"]", "the byte 0xFF, which is not UTF-8"},
      {"[\"\xC3\xA9\xC3\xA9\", ?]", "column 8: '?'"},
      {"{} {}", "'{' where the end of the file is expected"},
      {"", "the file is empty; download it again"},
      {" \n", "only white space"},
      {"<!DOCTYPE html>", "an HTML or XML page; download it again"},
      {"\xFF\xFE{", "UTF-16"},
      {"GGUF\x03", "the file is a GGUF file"},
      {"\x1F\x8B\x08", "not valid JSON: the file is compressed or an archive; unpack it"},
      {std::string_view("\0\0\0\0\0\0\0\0\0", 9), "begins with zeros only"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 11422654\n",
       "a Git LFS pointer to 11422654 bytes, not the file itself; run `git lfs pull`"},
  };
  for (const auto& [text, wanted] : kCases) {
    const Result<std::string> strict = strict_json(text);
    ASSERT_FALSE(strict.ok()) << text;
    EXPECT_NE(strict.status().message().find(wanted), std::string::npos)
        << strict.status().message();
  }
}

TEST(StrictJson, BoundsTheNesting) {
  const std::string open(kMaxJsonDepth, '[');
  const std::string close(kMaxJsonDepth, ']');
  EXPECT_TRUE(strict_json(open + close).ok());
  EXPECT_NE(strict_json("[" + open + close + "]").status().message().find("1000 levels"),
            std::string::npos);
  EXPECT_FALSE(strict_json(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(JsonDocument::parse(std::string(1100, '[') + std::string(1100, ']')).ok());
}

TEST(JsonDocument, ReadsWhatNobodyAsksForWithoutComplaint) {
  const Result<JsonDocument> document = JsonDocument::parse(R"({
    "model_max_length": 1000000000000000019884624838656,
    "nested": [[{"limit": -Infinity, "other": NaN}], 1e999, 123456789012345678901234567890],
    "broken": "\ud83d",
    "name": "first", "name": "last"})");
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(*document->root().require_string("name"), "last");
  EXPECT_EQ(*document->root().require_string("broken"), "\xEF\xBF\xBD");
}

TEST(JsonDocument, TakesTheValuesThatPythonTakes) {
  const Result<JsonDocument> document = JsonDocument::parse(
      R"({"integer": 4096.0, "yes": 1, "no": 0, "empty": null, "twice": null, "twice": 3})");
  EXPECT_EQ(*document->root().require("integer")->as_integer(), 4096);
  EXPECT_EQ(document->root().bool_or("yes", false).value(), true);
  EXPECT_EQ(document->root().bool_or("no", true).value(), false);
  EXPECT_FALSE(document->root().find("empty"));
  EXPECT_EQ(*document->root().find("twice")->as_integer(), 3);
}

TEST(JsonDocument, NamesPathAndValueOfWhatIsWrong) {
  const Result<JsonDocument> document = JsonDocument::parse(
      R"({"a": {"id": 1e30, "big": 1000000000000000019884624838656, "nan": NaN, "text": "x",
          "flag": 2, "list": [1, "two"], "inner": {}}})");
  const JsonValue a = *document->root().require("a");
  const auto message = [&](std::string_view key) {
    const Result<int64_t> value = a.require(key)->as_integer();
    return value.ok() ? std::string() : value.status().message();
  };
  EXPECT_EQ(message("id"), "a.id is 1e+30; expected a 64-bit integer");
  EXPECT_EQ(message("nan"), "a.nan is NaN; expected a 64-bit integer");
  EXPECT_EQ(message("text"), R"(a.text is "x"; expected a 64-bit integer)");
  EXPECT_EQ(message("inner"), "a.inner is an object; expected a 64-bit integer");
  EXPECT_NE(message("big").find("expected a 64-bit integer"), std::string::npos);
  EXPECT_EQ(a.bool_or("flag", false).status().message(), "a.flag is 2; expected true or false");
  EXPECT_EQ(a.require("list")->items()->at(1).as_bool().status().message(),
            R"(a.list[1] is "two"; expected true or false)");
  EXPECT_NE(a.require("lost").status().message().find("a.lost is missing"), std::string::npos);
}

}  // namespace
}  // namespace heddle
