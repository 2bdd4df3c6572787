// SPDX-License-Identifier: Apache-2.0
// Bodies as values: what the JSON library makes of them, and what is too much.
#include "server/json_text.h"

#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;
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

TEST(JsonTextTest, OfARepeatedKeyTheLastValueCountsAtTheFirstPlace) {
  Json object;
  ASSERT_FALSE(parse_json_object(R"({"b":1,"a":{"x":1},"b":[2],"c":3,"a":4,"b":5})", object));
  EXPECT_EQ(object.dump(), R"({"b":5,"a":4,"c":3})");
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

TEST(JsonTextTest, MoreValuesThanMemoryShouldHoldAreRefused) {
  std::string text = "{\"prompt\":[";
  for (int64_t i = 0; i <= kMaxJsonValues; ++i) text += "1,";
  text.back() = ']';
  Json object;
  const auto error = parse_json_object(text + "}", object);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr(fmt::format("more than {} values", kMaxJsonValues)));
  EXPECT_TRUE(object.is_null());
}

}  // namespace
}  // namespace heddle::server
