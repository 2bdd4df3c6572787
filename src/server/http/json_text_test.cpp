// SPDX-License-Identifier: Apache-2.0
// Bodies as values: what the JSON library makes of them, and what is too much.
#include "server/http/json_text.h"

#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/compiler.h"
#include "server/http/http_server.h"

namespace heddle::server {

using Json = nlohmann::ordered_json;

namespace {

using ::testing::HasSubstr;

std::string random_value(std::mt19937& random, int depth) {
  const auto below = [&random](uint32_t n) { return random() % n; };
  switch (below(depth < 5 ? 9 : 7)) {
    case 0:
      return "null";
    case 1:
      return below(2) == 0 ? "true" : "false";
    case 2:
      return fmt::format("-{}", below(1000));
    case 3:
      return "18446744073709551615";
    case 4:
      return fmt::format("{}.5e{}", below(100), below(20));
    case 5:
      return "\"\"";
    case 6:
      return fmt::format("\"a\\n\\u00e9{}\"", below(10));
    case 7: {
      std::string text = "[";
      for (uint64_t i = below(5); i > 0; --i) {
        text += random_value(random, depth + 1) + (i > 1 ? "," : "");
      }
      return text + "]";
    }
    default: {
      std::string text = "{";
      for (uint64_t i = below(8); i > 0; --i) {  // of six keys: some come twice
        text += fmt::format("\"{}\":", below(6)) + random_value(random, depth + 1);
        if (i > 1) text += ",";
      }
      return text + "}";
    }
  }
}

TEST(JsonTextTest, GivesWhatTheLibraryGives) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = "{\"a\": " + random_value(random, 0) + "}";
    Json object;
    ASSERT_FALSE(parse_json_object(text, object)) << text;
    EXPECT_EQ(object.dump(), Json::parse(text).dump()) << text;
  }
}

TEST(JsonTextTest, ANulByteDoesNotEndTheText) {
  for (const std::string_view text :
       {std::string_view("{}\0", 3), std::string_view("{\"a\": 1}\0{", 10),
        std::string_view("\0{}", 3), std::string_view("{\"a\0\": 1}", 10)}) {
    Json value;
    const auto error = parse_json_object(text, value);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, "invalid_json");
    EXPECT_NE(error->message.find("NUL"), std::string::npos) << error->message;
  }
}

TEST(JsonTextTest, OfARepeatedKeyTheLastValueCountsAtTheFirstPlace) {
  Json object;
  ASSERT_FALSE(parse_json_object(R"({"b":1,"a":{"x":1},"b":[2],"c":3,"a":4,"b":5})", object));
  EXPECT_EQ(object.dump(), R"({"b":5,"a":4,"c":3})");
}

TEST(JsonTextTest, SchemasKeepAllDigits) {
  for (const char* const field :
       {"tools", "functions", "response_format", "text", "format", "json_schema", "guided_json",
        "structured_outputs", "structural_tag", "output_config", "output_format", "messages"}) {
    const std::string text = fmt::format(
        R"({{"{}":[{{"enum":[18446744073709551616,1e400,-123456789012345678901]}}]}})", field);
    Json object;
    ASSERT_FALSE(parse_json_object(text, object)) << field;
    EXPECT_EQ(dump_json(object), text);
  }
  Json object;
  ASSERT_FALSE(parse_json_object(R"({"x":18446744073709551616})", object));
  EXPECT_TRUE(object["x"].is_number());
  ASSERT_FALSE(parse_json_object(R"({"x":18446744073709551616})", object, "A call",
                                 WideNumbers::kEverywhere));
  EXPECT_EQ(dump_json(object), R"({"x":18446744073709551616})");
}

TEST(JsonTextTest, ManyWideObjectsAreReadWhole) {
  std::string wide = "{";
  for (int i = 0; i < kMaxJsonObjectKeys; ++i) wide += fmt::format("\"key{}\":0,", i);
  wide.back() = '}';
  std::string text = "{\"x\":[";
  for (int i = 0; i < 100; ++i) text += wide + ",";
  text.back() = ']';
  Json object;
  ASSERT_FALSE(parse_json_object(text + "}", object));
  EXPECT_EQ(object["x"].size(), 100u);
  EXPECT_EQ(object["x"][99].size(), static_cast<size_t>(kMaxJsonObjectKeys));
}

// `count` times `item` in a list.
std::string list_of(std::string_view item, int64_t count, std::string_view field = "x") {
  std::string text = fmt::format("{{\"{}\":[", field);
  text.reserve(static_cast<size_t>(count) * (item.size() + 1) + 16);
  for (int64_t i = 0; i < count; ++i) text.append(item).append(",");
  text.back() = ']';
  return text + "}";
}

TEST(JsonTextTest, ABodyThatWouldGrowBeyondItsBoundIsRefused) {
  const std::string short_keys = [] {
    std::string object = "{";
    for (char key = 'a'; key <= 'z'; ++key) object += fmt::format("\"{}\":\"\",", key);
    object.back() = '}';
    return object;
  }();
  // Each is allowed up to 150 MiB and thrice its size.
  for (const auto& [item, bytes] : {std::pair<std::string, int64_t>{"1", 32},
                                    {"\"\"", 80},
                                    {"[]", 128},
                                    {"1e999", 132 + 5},
                                    {"-1.5E+0400", 132 + 9},
                                    {"12345678901234567890", 132 + 20},
                                    {"{}", 96},
                                    {"\"sixteen letters.\"", 80 + 49},
                                    {short_keys, 96 + 26 * (96 + 48)}}) {
    const int64_t most = kFreeJsonBytes / (bytes - kJsonGrowth * (std::ssize(item) + 1));
    SCOPED_TRACE(fmt::format("{}: {}", item.substr(0, 20), most));
    Json object;
    const auto error = parse_json_object(list_of(item, most + 2, "input"), object);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, "invalid_json");
    EXPECT_THAT(error->message, HasSubstr("send less at once"));
    EXPECT_TRUE(object.is_null());
    EXPECT_FALSE(parse_json_object(list_of(item, most / 50, "input"), object));
  }
}

TEST(JsonTextTest, ReadsLargeTextsThatAreNotDense) {
  constexpr size_t kLetters = size_t{HEDDLE_SANITIZED ? 1 : 30} << 20;
  constexpr size_t kIds = HEDDLE_SANITIZED ? 100'000 : 3'000'000;
  Json object;
  EXPECT_FALSE(
      parse_json_object(fmt::format(R"({{"x":"{}"}})", std::string(kLetters, 'x')), object));
  EXPECT_EQ(object["x"].get_ref<const std::string&>().size(), kLetters);
  EXPECT_FALSE(parse_json_object(list_of("151645", kIds), object)) << "many token ids";
  EXPECT_EQ(object["x"].size(), kIds);
  EXPECT_FALSE(parse_json_object(list_of("-0.123456789012345678e-10", kIds), object)) << "logprobs";
  EXPECT_EQ(object["x"].size(), kIds);
}

TEST(JsonTextTest, TheLargestBodyOfTokenIdsIsRead) {
  if (HEDDLE_SANITIZED) GTEST_SKIP() << "eleven million values take minutes under a sanitizer";
  constexpr std::string_view kId = "99999";
  const int64_t count =
      (HttpServerOptions().max_request_bytes - 8) / (std::ssize(kId) + 1);  // {"x":[ and }
  Json object;
  ASSERT_FALSE(parse_json_object(list_of(kId, count), object));
  EXPECT_EQ(object["x"].size(), static_cast<size_t>(count));
}

// The limits count the bytes taken while lists and objects grow: up to twice what stays.
TEST(JsonTextTest, ValuesTakeWhatIsCounted) {
#ifdef __GLIBC__
  const auto taken = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t without = taken();
  const std::string probe(1 << 20, ' ');
  if (taken() < without + probe.size()) GTEST_SKIP() << "this allocator is not the C library's";
  for (const auto& [item, bytes] : {std::pair<std::string, double>{"\"\"", 80},
                                    {"[0]", 128},
                                    {"\"sixteen letters.\"", 80 + 49},
                                    {R"({"a":"","b":"","c":""})", 96 + 3 * (96 + 48)}}) {
    SCOPED_TRACE(item);
    constexpr int64_t kCount = 100'000;
    const std::string text = list_of(item, kCount);
    Json object;
    const size_t before = taken();
    ASSERT_FALSE(parse_json_object(text, object));
    const double each = static_cast<double>(taken() - before) / kCount;
    EXPECT_LE(each, bytes);
    EXPECT_GE(each, bytes / 2);
  }
#else
  GTEST_SKIP() << "this C library does not tell what is allocated";
#endif
}

}  // namespace
}  // namespace heddle::server
